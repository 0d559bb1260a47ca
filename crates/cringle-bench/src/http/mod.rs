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
use args::{HttpCase, Variant};
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
struct HttpSample {
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

impl HttpSample {
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

type Line = experiment::Line<Subject, HttpSample>;

type Table = experiment::Table<HttpCase, Subject, HttpSample>;

impl Table {
    /// Returns the row of a server with its default features.
    fn line(&self, server: args::Server) -> Option<&Line> {
        let whole = Subject::Ours(Variant { server, changed: None });
        self.lines.iter().find(|line| line.subject == whole)
    }
}

fn measure(args: &HttpArgs) -> Result<Report, Failure> {
    let machine = Machine::of(&crate::storage_under(Path::new("."))?);
    let progress = Progress::new(!args.outputs.quiet);
    if let Some(connections) = args.idle {
        return idle::measure(args, connections, &progress, machine);
    }
    let mut tables = tables(args);
    let runs = tables.iter().map(|table| table.lines.len() * args.repeat()).sum();
    let bar = progress.runs(runs);
    let mut bench = HttpBench { args, cpus: cpus::allowed(), notes: Notes::default() };
    for Table { case, lines } in &mut tables {
        open_files::allow(case.connections)?;
        for round in 0..args.repeat() {
            turns((round, true), lines, &bar, |subject| bench.turn(*case, subject))?;
        }
    }
    bar.finish_and_clear();
    Ok(report::of(args, &tables, machine, bench.notes))
}

/// Returns the tables, without figures.
fn tables(args: &HttpArgs) -> Vec<Table> {
    let table = |case| Table::new(case, subjects(args, &case));
    args.cases().into_iter().map(table).collect()
}

/// Returns the servers that the benchmark starts.
fn subjects(args: &HttpArgs, case: &HttpCase) -> Vec<Subject> {
    let ours = args.variants(case.workers).into_iter().map(Subject::Ours);
    let others = args.commands.iter().filter(|one| one.supports(case.workers));
    ours.chain(others.cloned().map(Subject::Program)).collect()
}

/// Returns the parameters of the load.
fn plan(
    args: &HttpArgs,
    case: HttpCase,
    addr: SocketAddr,
    cpus: Vec<usize>,
    subject: &Subject,
) -> load::Plan {
    let page = || ServedPage::new(args.response_bytes(), !case.keepalive).response;
    load::Plan {
        addr,
        connections: case.connections,
        keepalive: case.keepalive,
        extent: args.extent(),
        expected: match subject {
            Subject::Ours(_) => Expected::Exactly(page()),
            Subject::Program(_) => Expected::Good,
        },
        cpus,
    }
}

struct HttpBench<'a> {
    args: &'a HttpArgs,
    cpus: Vec<usize>,
    notes: Notes,
}

impl HttpBench<'_> {
    fn turn(
        &mut self,
        case: HttpCase,
        subject: &Subject,
    ) -> Result<(HttpSample, Latencies), Failure> {
        let (mut server, plan) = self.start(case, subject)?;
        under_load(&plan, &mut *server)
            .map_err(|error| failed(subject, &case, &error, server.failure()))
    }

    /// Starts a server. Returns it, and the parameters of the load.
    fn start(&mut self, case: HttpCase, subject: &Subject) -> Result<Started, Failure> {
        let CpuSplit { server: cpus, load } =
            CpuSplit::of(&self.cpus, case.workers, &mut self.notes);
        let started = match subject {
            Subject::Ours(variant) => OwnServer::start(self.args, &case, *variant, &cpus),
            Subject::Program(program) => program.start(&case, &cpus),
        };
        let server = started.map_err(Failure::because(format_args!(
            "the server `{}` did not start",
            subject.name()
        )))?;
        let plan = plan(self.args, case, server.addr(), load, subject);
        Ok((server, plan))
    }
}

type Started = (Box<dyn ServerProcess>, load::Plan);

/// Makes the load for a server.
fn under_load(
    plan: &load::Plan,
    server: &mut dyn ServerProcess,
) -> io::Result<(HttpSample, Latencies)> {
    let server = std::cell::RefCell::new(server);
    let started = || Ok((server.borrow_mut().used()?, Meter::start()));
    let ended = |(before, meter): (Usage, Meter)| {
        let load = meter.stop();
        Ok((load, server.borrow_mut().used()?.since(&before)))
    };
    let (result, (load, used)) = load::drive(plan, started, ended)?;
    let sample = HttpSample {
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
fn failed(subject: &Subject, case: &HttpCase, error: &io::Error, ended: Option<String>) -> Failure {
    let (name, connections) = (subject.name(), case.connections);
    let why = ended.map_or_else(|| error.to_string(), |how| format!("it has ended, {how}"));
    Failure::failed(format!("`{name}` with {connections} connections: {why}"))
}
