//! `--idle`: opens many connections and keeps them idle. Measures the memory that each costs the
//! server, and the time until all of them have been served again.

mod clients;
mod memory;
mod report;

use super::args::{HttpArgs, HttpCase};
use super::server_process::ServerProcess;
use super::{HttpBench, Subject, failed, open_files};
use crate::experiment::{self, Notes, Report};
use crate::latency::Latencies;
use crate::rounds::{Progress, turns};
use clients::Clients;
use cringle_report::failure::Failure;
use cringle_report::machine::{Machine, cpus};
use memory::Memory;

/// The figures of one server in one round.
#[derive(Clone, Debug)]
struct IdleSample {
    before: Memory,
    idle: Memory,
    /// The time until all connections were open and had a response.
    opened_seconds: f64,
    /// The time until all had another response.
    served_seconds: f64,
    served_cpu_seconds: f64,
}

type Line = experiment::Line<Subject, IdleSample>;

pub(super) fn measure(
    args: &HttpArgs,
    connections: usize,
    progress: &Progress,
    machine: Machine,
) -> Result<Report, Failure> {
    open_files::allow(connections)?;
    let case = HttpCase { workers: args.idle_workers(), connections, keepalive: true };
    let mut lines: Vec<Line> = super::subjects(args, &case).into_iter().map(Line::new).collect();
    let mut bench = HttpBench { args, cpus: cpus::allowed(), notes: Notes::default() };
    let bar = progress.runs(lines.len() * args.repeat());
    for round in 0..args.repeat() {
        turns((round, true), &mut lines, &bar, |subject| {
            let (mut server, plan) = bench.start(case, subject)?;
            let sample = of_server(&mut *server, &plan)
                .map_err(|error| failed(subject, &case, &error, server.failure()))?;
            Ok((sample, Latencies::new()))
        })?;
    }
    bar.finish_and_clear();
    Ok(report::of(case, &lines, machine, bench.notes))
}

fn of_server(
    server: &mut dyn ServerProcess,
    plan: &super::load::Plan,
) -> std::io::Result<IdleSample> {
    let before = Memory::of(&server.ids())?;
    let (mut clients, opened_seconds) = Clients::open(plan)?;
    let idle = Memory::of(&server.ids())?;
    let used = server.used()?;
    let served_seconds = clients.request(plan)?;
    let served_cpu_seconds = server.used()?.since(&used).cpu_seconds();
    Ok(IdleSample { before, idle, opened_seconds, served_seconds, served_cpu_seconds })
}
