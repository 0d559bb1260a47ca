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
mod other_clients;
mod plot;
mod process_tree;
mod program;
mod report;
mod sentences;
mod served_page;
mod server_process;
mod servers;
mod syscalls;

pub use args::HttpArgs;

use crate::latency::Latencies;
use crate::meter::{Meter, Usage};
use crate::notes::Notes;
use crate::order;
use crate::progress::Progress;
use args::{Cell, Client, Variant};
use cpu_split::CpuSplit;
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::{Machine, cpus};
use cringle_report::plot::standalone;
use exchange::Expected;
use indicatif::ProgressBar;
use program::Program;
use served_page::ServedPage;
use server_process::{OwnServer, ServerProcess, ServerUse};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// The figures of a run.
#[derive(Clone, Debug)]
struct Sample {
    requests: u64,
    errors: u64,
    requests_per_second: f64,
    /// `None` if the server runs on another machine.
    used: Option<ServerUse>,
    /// `None` if another program makes the load.
    load: Option<LoadUse>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct LoadUse {
    /// The part of its processors' time that the load has used.
    busy: f64,
    cpu_us_per_request: f64,
}

impl Sample {
    fn load_busy(&self) -> Option<f64> {
        self.load.map(|load| load.busy)
    }

    fn per_request(&self, of: impl Fn(&ServerUse) -> f64) -> Option<f64> {
        self.used.as_ref().map(|used| of(used) / self.requests.max(1) as f64)
    }

    fn rate(&self) -> Option<f64> {
        Some(self.requests_per_second)
    }

    fn cpu_us(&self) -> Option<f64> {
        self.per_request(|used| used.cpu_seconds * 1e6)
    }

    fn context_switches(&self) -> Option<f64> {
        self.per_request(|used| used.context_switches as f64)
    }
}

/// A server to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Ours(Variant),
    /// Another program, which the benchmark starts (`--command`).
    Program(Program),
    /// A server that is running already (`--target`).
    Target,
}

impl Subject {
    fn label(&self) -> String {
        match self {
            Subject::Ours(variant) => variant.label(),
            Subject::Program(program) => program.name.clone(),
            Subject::Target => "target".into(),
        }
    }

    fn is(&self, server: args::Server) -> bool {
        matches!(self, Subject::Ours(variant) if variant.server == server)
    }
}

/// A row of a table.
struct Line {
    subject: Subject,
    /// One for each round, in order.
    samples: Vec<Sample>,
    /// The latencies of all samples.
    latencies: Latencies,
    /// The system calls per request.
    syscalls: Option<f64>,
}

impl Line {
    fn new(subject: Subject) -> Line {
        Line { subject, samples: Vec::new(), latencies: Latencies::new(), syscalls: None }
    }

    fn label(&self) -> String {
        self.subject.label()
    }

    fn median(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        cringle_report::stats::median(self.samples.iter().filter_map(of))
    }

    fn rate(&self) -> f64 {
        self.median(Sample::rate).unwrap_or(f64::NAN)
    }
}

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

struct Findings {
    machine: Machine,
    programs: Vec<Program>,
    response_bytes: Option<usize>,
    client: Client,
    blocks: Vec<Block>,
    notes: Vec<String>,
}

pub(crate) fn run(args: &HttpArgs, verbose: bool) -> Result<(), Failure> {
    args.validate()?;
    if let Some(addr) = &args.listen {
        return listen::run(args, addr);
    }
    if !args.client.is_installed() {
        let name = args.client.program().unwrap_or_default();
        return fail(format!("`{name}` cannot be run: install it, or leave out --client"));
    }
    crate::begin(verbose);
    if let Some(connections) = args.idle {
        return idle::run(args, connections);
    }
    if let Some(directory) = &args.svg {
        std::fs::create_dir_all(directory).map_err(|error| {
            Failure::failed(format!("{}: cannot create: {error}", directory.display()))
        })?;
    }
    let progress = Progress::new(!args.quiet && !args.outputs.use_stdout());
    let mut blocks = blocks(args)?;
    if let Some(directory) = &args.svg {
        let names = plot::drawings(&blocks, directory).into_iter().map(|(path, _)| path);
        names
            .fold(args.outputs.files(), |files, path| files.result("--svg", Some(path)))
            .check()?;
    }
    let runs = blocks.iter().map(|block| block.lines.len() * (args.repeat() + 1)).sum::<usize>();
    let bar = progress.runs(runs as u64);
    let mut bench = Bench { args, cpus: cpus::allowed(), bar, notes: Notes::default() };
    for block in &mut blocks {
        bench.measure(block)?;
    }
    bench.bar.finish_and_clear();
    let findings = Findings {
        machine: Machine::of(&crate::storage_under(Path::new("."))?),
        programs: args.programs()?,
        response_bytes: args.target.is_none().then(|| args.response_bytes()),
        client: args.client,
        notes: bench.notes.all().to_vec(),
        blocks,
    };
    if let Some(directory) = &args.svg {
        for (path, plot) in plot::drawings(&findings.blocks, directory) {
            cringle_report::file::write("--svg", &path, &standalone(&plot))?;
        }
    }
    report::write(&findings, &args.outputs)
}

/// Returns the tables, without figures.
fn blocks(args: &HttpArgs) -> Result<Vec<Block>, Failure> {
    let block = |cell: Cell| {
        let lines = match args.target {
            Some(_) => vec![Line::new(Subject::Target)],
            None => subjects(args, &cell)?.into_iter().map(Line::new).collect(),
        };
        Ok(Block { cell, lines })
    };
    args.cells().into_iter().map(block).collect()
}

/// Returns the servers that the benchmark starts.
fn subjects(args: &HttpArgs, cell: &Cell) -> Result<Vec<Subject>, Failure> {
    let ours = args.variants(cell.workers)?.into_iter().map(Subject::Ours);
    let others = args.programs()?.into_iter().filter(|one| one.supports(cell.workers));
    Ok(ours.chain(others.map(Subject::Program)).collect())
}

fn start(
    args: &HttpArgs,
    cell: Cell,
    subject: &Subject,
    cpus: &[usize],
) -> Result<Box<dyn ServerProcess>, Failure> {
    let started = match subject {
        Subject::Ours(variant) => OwnServer::start(args, &cell, *variant, cpus),
        Subject::Program(program) => program.start(&cell, cpus),
        Subject::Target => unreachable!("a target is running already"),
    };
    started.map_err(|error| {
        Failure::failed(format!("the server `{}` did not start: {error}", subject.label()))
    })
}

/// Returns the parameters of the load.
fn plan(
    args: &HttpArgs,
    cell: Cell,
    addr: SocketAddr,
    split: &CpuSplit,
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
            Subject::Program(_) | Subject::Target => Expected::Good,
        },
        cpus: split.load.clone(),
    }
}

struct Bench<'a> {
    args: &'a HttpArgs,
    cpus: Vec<usize>,
    bar: ProgressBar,
    notes: Notes,
}

impl Bench<'_> {
    /// Measures all servers in turns, round by round, and counts system calls in a last round.
    fn measure(&mut self, block: &mut Block) -> Result<(), Failure> {
        open_files::allow(block.cell.connections)?;
        for round in 0..=self.args.repeat() {
            for index in order::of_round(round, block.lines.len()) {
                let line = &mut block.lines[index];
                self.bar.set_message(line.label());
                if round < self.args.repeat() {
                    self.turn(block.cell, line)?;
                } else {
                    self.count_syscalls(block.cell, line)?;
                }
                self.bar.inc(1);
            }
        }
        Ok(())
    }

    fn turn(&mut self, cell: Cell, line: &mut Line) -> Result<(), Failure> {
        if line.subject == Subject::Target {
            let addr = listen::resolve(self.args.target.as_deref().unwrap_or_default())?;
            return self.load_alone(cell, addr, line);
        }
        let split = CpuSplit::of(&self.cpus, cell.workers, &mut self.notes);
        let mut server = start(self.args, cell, &line.subject, &split.server)?;
        let result = match self.args.client {
            Client::Own => self.with_own_load(cell, &mut *server, &split, line),
            client => self.with_other_client(client, cell, &mut *server, &split, line),
        };
        result.map_err(|error| failed(line, &cell, error, server.failure()))
    }

    fn with_own_load(
        &self,
        cell: Cell,
        server: &mut dyn ServerProcess,
        split: &CpuSplit,
        line: &mut Line,
    ) -> io::Result<()> {
        let plan = plan(self.args, cell, server.addr(), split, &line.subject);
        let server = std::cell::RefCell::new(server);
        let mut used = ServerUse::default();
        let started = || {
            let before = server.borrow_mut().used()?;
            Ok((before, Meter::start()))
        };
        let mut mine = Usage::default();
        let result = load::drive(&plan, started, |(before, meter)| {
            mine = meter.stop();
            used = server.borrow_mut().used()?.since(before);
            Ok(())
        })?;
        line.latencies.merge(&result.latencies);
        line.samples.push(sample(&result, &plan, &mine, Some(used)));
        Ok(())
    }

    fn with_other_client(
        &self,
        client: Client,
        cell: Cell,
        server: &mut dyn ServerProcess,
        split: &CpuSplit,
        line: &mut Line,
    ) -> io::Result<()> {
        let before = server.used()?;
        let report =
            other_clients::drive(client, server.addr(), &cell, self.args.extent(), &split.load)?;
        line.samples.push(Sample {
            requests: report.requests,
            errors: report.errors,
            requests_per_second: report.requests_per_second,
            used: Some(server.used()?.since(before)),
            load: None,
            p50_us: report.p50_us,
            p99_us: report.p99_us,
            p999_us: None,
        });
        Ok(())
    }

    fn load_alone(&self, cell: Cell, addr: SocketAddr, line: &mut Line) -> Result<(), Failure> {
        let split = CpuSplit { server: Vec::new(), load: self.cpus.clone() };
        let plan = plan(self.args, cell, addr, &split, &line.subject);
        let mut mine = Usage::default();
        let result = load::drive(
            &plan,
            || Ok(Meter::start()),
            |meter| {
                mine = meter.stop();
                Ok(())
            },
        );
        let result = result.map_err(|error| failed(line, &cell, error, None))?;
        line.latencies.merge(&result.latencies);
        line.samples.push(sample(&result, &plan, &mine, None));
        Ok(())
    }

    fn count_syscalls(&mut self, cell: Cell, line: &mut Line) -> Result<(), Failure> {
        if line.subject == Subject::Target {
            return Ok(());
        }
        let split = CpuSplit::of(&self.cpus, cell.workers, &mut self.notes);
        let mut server = start(self.args, cell, &line.subject, &split.server)?;
        let counter = match syscalls::Counter::of(&server.ids()) {
            Ok(counter) => std::cell::RefCell::new(counter),
            Err(error) => {
                self.notes.add(format!(
                    "system calls are not counted: cannot open perf's counter: {error}"
                ));
                return Ok(());
            }
        };
        let plan = plan(self.args, cell, server.addr(), &split, &line.subject);
        let read = || counter.borrow_mut().read();
        let mut calls = 0;
        let result = load::drive(&plan, read, |before| {
            calls = read()? - before;
            Ok(())
        });
        let result = result.map_err(|error| failed(line, &cell, error, server.failure()))?;
        line.syscalls = Some(calls as f64 / result.requests.max(1) as f64);
        Ok(())
    }
}

fn sample(
    result: &load::LoadResult,
    plan: &load::Plan,
    load: &Usage,
    used: Option<ServerUse>,
) -> Sample {
    let load_cpu = load.cpu_seconds();
    Sample {
        requests: result.requests,
        errors: result.errors,
        requests_per_second: result.requests as f64 / load.seconds,
        used,
        load: Some(LoadUse {
            busy: load_cpu / load.seconds / plan.cpus.len().max(1) as f64,
            cpu_us_per_request: load_cpu * 1e6 / result.requests.max(1) as f64,
        }),
        p50_us: result.latencies.quantile_us(0.50),
        p99_us: result.latencies.quantile_us(0.99),
        p999_us: result.latencies.quantile_us(0.999),
    }
}

/// Returns the failure of a run: how the server has ended, if it has, and otherwise the error of
/// the load.
fn failed(line: &Line, cell: &Cell, error: io::Error, ended: Option<String>) -> Failure {
    let (label, connections) = (line.label(), cell.connections);
    let why = ended.map_or_else(|| error.to_string(), |how| format!("it has ended, {how}"));
    Failure::failed(format!("`{label}` with {connections} connections: {why}"))
}
