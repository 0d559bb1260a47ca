//! `--idle`: opens many connections and keeps them idle. Measures the memory that each costs the
//! server, and the time until all of them have been served again.

mod clients;
mod memory;
mod report;

use super::args::{Cell, HttpArgs};
use super::cpu_split::CpuSplit;
use super::server_process::ServerProcess;
use super::{Subject, open_files, start};
use crate::experiment::{self, Notes, Report};
use crate::latency::Latencies;
use crate::rounds::{Progress, turns};
use clients::Clients;
use cringle_report::failure::Failure;
use cringle_report::machine::{Machine, cpus};
use memory::Memory;

/// The figures of one server in one round.
#[derive(Clone, Debug)]
struct Sample {
    before: Memory,
    idle: Memory,
    /// The time until all connections were open and had a response.
    opened_seconds: f64,
    /// The time until all had another response.
    served_seconds: f64,
    served_cpu_seconds: f64,
}

type Line = experiment::Line<Subject, Sample>;

pub(super) fn measure(
    args: &HttpArgs,
    connections: usize,
    progress: &Progress,
    machine: Machine,
) -> Result<Report, Failure> {
    let mut notes = Notes::default();
    open_files::allow(connections)?;
    let cell = Cell { workers: args.idle_workers(), connections, keepalive: true };
    let mut lines: Vec<Line> = super::subjects(args, &cell).into_iter().map(Line::new).collect();
    let split = CpuSplit::of(&cpus::allowed(), cell.workers, &mut notes);
    let bar = progress.runs(lines.len() * args.repeat());
    for round in 0..args.repeat() {
        turns((round, true), &mut lines, &bar, |subject| {
            Ok((sample(args, cell, subject, &split)?, Latencies::new()))
        })?;
    }
    bar.finish_and_clear();
    Ok(report::of(cell, &lines, machine, notes))
}

fn sample(
    args: &HttpArgs,
    cell: Cell,
    subject: &Subject,
    split: &CpuSplit,
) -> Result<Sample, Failure> {
    let mut server = start(args, cell, subject, &split.server)?;
    let plan = super::plan(args, cell, server.addr(), split, subject);
    of_server(&mut *server, &plan)
        .map_err(|error| super::failed(subject, &cell, &error, server.failure()))
}

fn of_server(server: &mut dyn ServerProcess, plan: &super::load::Plan) -> std::io::Result<Sample> {
    let before = Memory::of(&server.ids())?;
    let (mut clients, opened_seconds) = Clients::open(plan)?;
    let idle = Memory::of(&server.ids())?;
    let used = server.used()?;
    let served_seconds = clients.request(plan)?;
    let served_cpu_seconds = server.used()?.since(&used).cpu_seconds();
    Ok(Sample { before, idle, opened_seconds, served_seconds, served_cpu_seconds })
}
