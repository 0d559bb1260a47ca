//! `--idle`: opens many connections and keeps them idle. Measures the memory that each costs the
//! server, and the time until all of them have been served again.

mod clients;
mod memory;
mod report;

use super::args::{Cell, HttpArgs};
use super::cpu_split::CpuSplit;
use super::server_process::ServerProcess;
use super::{Line, Subject, open_files, start};
use crate::notes::Notes;
use crate::progress::Progress;
use clients::Clients;
use cringle_report::failure::Failure;
use cringle_report::machine::{Machine, cpus};
use memory::Memory;
use std::path::Path;

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

struct Row {
    subject: Subject,
    samples: Vec<Sample>,
}

struct Findings {
    machine: Machine,
    cell: Cell,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Row {
    fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        cringle_report::stats::median(self.samples.iter().map(of)).unwrap_or(f64::NAN)
    }
}

pub(super) fn run(args: &HttpArgs, connections: usize) -> Result<(), Failure> {
    open_files::allow(connections)?;
    let cell = Cell { workers: args.idle_workers(), connections, keepalive: true };
    let subjects = super::subjects(args, &cell)?;
    let row = |subject| Row { subject, samples: Vec::new() };
    let mut rows: Vec<Row> = subjects.into_iter().map(row).collect();
    let mut notes = Notes::default();
    let split = CpuSplit::of(&cpus::allowed(), cell.workers, &mut notes);
    let progress = Progress::new(!args.quiet && !args.outputs.use_stdout());
    let bar = progress.runs((rows.len() * args.repeat()) as u64);
    for _ in 0..args.repeat() {
        for row in &mut rows {
            bar.set_message(row.subject.label());
            row.samples.push(sample(args, cell, &row.subject, &split)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let machine = Machine::of(&crate::storage_under(Path::new("."))?);
    let notes = notes.all().to_vec();
    report::write(&Findings { machine, cell, rows, notes }, &args.outputs)
}

fn sample(
    args: &HttpArgs,
    cell: Cell,
    subject: &Subject,
    split: &CpuSplit,
) -> Result<Sample, Failure> {
    let mut server = start(args, cell, subject, &split.server)?;
    let plan = super::plan(args, cell, server.addr(), split, subject);
    let measured = measure(&mut *server, &plan);
    measured
        .map_err(|error| super::failed(&Line::new(subject.clone()), &cell, error, server.failure()))
}

fn measure(server: &mut dyn ServerProcess, plan: &super::load::Plan) -> std::io::Result<Sample> {
    let before = Memory::of(&server.ids())?;
    let (mut clients, opened_seconds) = Clients::open(plan)?;
    let idle = Memory::of(&server.ids())?;
    let used = server.used()?;
    let served_seconds = clients.request(plan)?;
    let served_cpu_seconds = server.used()?.since(used).cpu_seconds;
    Ok(Sample { before, idle, opened_seconds, served_seconds, served_cpu_seconds })
}
