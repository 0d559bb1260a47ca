//! `cringle bench http`: compares servers that respond to every request with the same small page,
//! as in the papers on MIO and URingManager.
//!
//! Each run has a server in a process of its own, and the load in this process, on other
//! processors. The servers take turns. CPU time and context switches are those of the server,
//! between the first measured request and the last response.

mod args;
mod cpu_split;
mod exchange;
mod idle;
mod listen;
mod load;
mod open_files;
mod plot;
mod process_tree;
mod program;
mod report;
mod served_page;
mod server_process;
mod servers;

pub use args::HttpArgs;

use crate::experiment::{self, Named, Notes, Report};
use crate::latency::Latencies;
use crate::meter::{Meter, Usage};
use crate::rounds::{Progress, turns};
use args::{Cell, Variant};
use cpu_split::CpuSplit;
use cringle_report::failure::Failure;
use cringle_report::machine::{Machine, cpus};
use exchange::Expected;
use program::Program;
use served_page::ServedPage;
use server_process::{OwnServer, ServerProcess};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// The figures of a run.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sample {
    requests: u64,
    errors: u64,
    requests_per_second: f64,
    /// What the server has used.
    used: Usage,
    /// What the load has used, and the part of its processors' time.
    load: Usage,
    load_busy: f64,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
}

impl Sample {
    fn per_request(&self, amount: f64) -> f64 {
        amount / self.requests.max(1) as f64
    }

    fn cpu_us(&self) -> f64 {
        self.per_request(self.used.cpu_seconds() * 1e6)
    }

    fn context_switches(&self) -> f64 {
        self.per_request(self.used.context_switches as f64)
    }

    fn load_cpu_us(&self) -> f64 {
        self.per_request(self.load.cpu_seconds() * 1e6)
    }
}

/// A server to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Ours(Variant),
    /// Another program, which the benchmark starts (`--command`).
    Program(Program),
}

impl Named for Subject {
    fn name(&self) -> String {
        match self {
            Subject::Ours(variant) => variant.label(),
            Subject::Program(program) => program.name.clone(),
        }
    }
}

impl Subject {
    fn is(&self, server: args::Server) -> bool {
        matches!(self, Subject::Ours(variant) if variant.server == server)
    }
}

type Line = experiment::Line<Subject, Sample>;

struct Block {
    cell: Cell,
    lines: Vec<Line>,
}

impl Block {
    /// Returns the row of a server with its default features.
    fn line(&self, server: args::Server) -> Option<&Line> {
        let whole = Subject::Ours(Variant { server, changed: None });
        self.lines.iter().find(|line| line.subject == whole)
    }
}

fn measure(args: &HttpArgs) -> Result<Report, Failure> {
    let machine = Machine::of(&crate::storage_under(Path::new("."))?);
    let progress = Progress::new(!args.quiet);
    if let Some(connections) = args.idle {
        return idle::measure(args, connections, &progress, machine);
    }
    let mut blocks = blocks(args);
    let runs = blocks.iter().map(|block| block.lines.len() * args.repeat()).sum();
    let bar = progress.runs(runs);
    let mut bench = Bench { args, cpus: cpus::allowed(), notes: Notes::default() };
    for Block { cell, lines } in &mut blocks {
        open_files::allow(cell.connections)?;
        for round in 0..args.repeat() {
            turns((round, true), lines, &bar, |subject| bench.turn(*cell, subject))?;
        }
    }
    bar.finish_and_clear();
    Ok(report::of(args, &blocks, machine, bench.notes))
}

/// Returns the tables, without figures.
fn blocks(args: &HttpArgs) -> Vec<Block> {
    let block = |cell: Cell| Block {
        cell,
        lines: subjects(args, &cell).into_iter().map(Line::new).collect(),
    };
    args.cells().into_iter().map(block).collect()
}

/// Returns the servers that the benchmark starts.
fn subjects(args: &HttpArgs, cell: &Cell) -> Vec<Subject> {
    let ours = args.variants(cell.workers).into_iter().map(Subject::Ours);
    let others = args.commands.iter().filter(|one| one.supports(cell.workers));
    ours.chain(others.cloned().map(Subject::Program)).collect()
}

/// Returns the parameters of the load.
fn plan(
    args: &HttpArgs,
    cell: Cell,
    addr: SocketAddr,
    cpus: Vec<usize>,
    subject: &Subject,
) -> load::Plan {
    let page = || ServedPage::new(args.response_bytes(), !cell.keepalive).response;
    load::Plan {
        addr,
        connections: cell.connections,
        keepalive: cell.keepalive,
        extent: args.extent(),
        expected: match subject {
            Subject::Ours(_) => Expected::Exactly(page()),
            Subject::Program(_) => Expected::Good,
        },
        cpus,
    }
}

struct Bench<'a> {
    args: &'a HttpArgs,
    cpus: Vec<usize>,
    notes: Notes,
}

impl Bench<'_> {
    fn turn(&mut self, cell: Cell, subject: &Subject) -> Result<(Sample, Latencies), Failure> {
        let (mut server, plan) = self.start(cell, subject)?;
        under_load(&plan, &mut *server)
            .map_err(|error| failed(subject, &cell, &error, server.failure()))
    }

    /// Starts a server. Returns it, and the parameters of the load.
    fn start(&mut self, cell: Cell, subject: &Subject) -> Result<Started, Failure> {
        let CpuSplit { server: cpus, load } =
            CpuSplit::of(&self.cpus, cell.workers, &mut self.notes);
        let started = match subject {
            Subject::Ours(variant) => OwnServer::start(self.args, &cell, *variant, &cpus),
            Subject::Program(program) => program.start(&cell, &cpus),
        };
        let server = started.map_err(Failure::because(format_args!(
            "the server `{}` did not start",
            subject.name()
        )))?;
        let plan = plan(self.args, cell, server.addr(), load, subject);
        Ok((server, plan))
    }
}

type Started = (Box<dyn ServerProcess>, load::Plan);

/// Makes the load for a server.
fn under_load(
    plan: &load::Plan,
    server: &mut dyn ServerProcess,
) -> io::Result<(Sample, Latencies)> {
    let server = std::cell::RefCell::new(server);
    let started = || Ok((server.borrow_mut().used()?, Meter::start()));
    let ended = |(before, meter): (Usage, Meter)| {
        let load = meter.stop();
        Ok((load, server.borrow_mut().used()?.since(&before)))
    };
    let (result, (load, used)) = load::drive(plan, started, ended)?;
    let sample = Sample {
        requests: result.requests,
        errors: result.errors,
        requests_per_second: result.requests as f64 / load.seconds,
        used,
        load_busy: load.cpu_seconds() / load.seconds / plan.cpus.len().max(1) as f64,
        load,
        p50_us: result.latencies.quantile_us(0.50),
        p99_us: result.latencies.quantile_us(0.99),
        p999_us: result.latencies.quantile_us(0.999),
    };
    Ok((sample, result.latencies))
}

/// Returns the failure of a run: how the server has ended, if it has, and otherwise the error of
/// the load.
fn failed(subject: &Subject, cell: &Cell, error: &io::Error, ended: Option<String>) -> Failure {
    let (name, connections) = (subject.name(), cell.connections);
    let why = ended.map_or_else(|| error.to_string(), |how| format!("it has ended, {how}"));
    Failure::failed(format!("`{name}` with {connections} connections: {why}"))
}
