//! `cringle bench http`: servers that answer every request with the same small page, in the shape of the
//! measurements in the papers on MIO and URingManager.
//!
//! Each run has a server in a process of its own and the load in this one, on other processors. The
//! servers take turns; CPU and context switches are the server's, between the first request that counts
//! and the last answer.

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
use crate::progress::Progress;
use args::{Cell, Client, Variant};
use cpu_split::CpuSplit;
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::{Machine, cpus, storage::Storage};
use exchange::Expected;
use indicatif::ProgressBar;
use program::Program;
use served_page::ServedPage;
use server_process::{Process, ServerProcess, ServerUse};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// One run.
#[derive(Clone, Debug)]
struct Sample {
    requests: u64,
    errors: u64,
    requests_per_second: f64,
    /// The server's, where it is here.
    used: Option<ServerUse>,
    /// The load's, where it is made here.
    load: Option<LoadUse>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct LoadUse {
    /// Of the time of its processors.
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

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Ours(Variant),
    /// Somebody else's, which is started here.
    Program(Program),
    /// One that somebody else has started.
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

/// A line of a table.
struct Line {
    subject: Subject,
    /// In the order of the rounds.
    samples: Vec<Sample>,
    /// Of all samples together.
    latencies: Latencies,
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

pub fn run(args: &HttpArgs, verbose: bool) -> Result<(), Failure> {
    args.validate()?;
    if let Some(addr) = &args.listen {
        return listen::run(args, addr);
    }
    args.outputs.check()?;
    if !args.client.is_there() {
        let name = args.client.program().unwrap_or_default();
        return fail(format!("`{name}` cannot be run: install it, or leave out --client"));
    }
    if verbose {
        cringle_report::complain(&super::describe_driver());
    }
    if let Some(connections) = args.idle {
        return idle::run(args, connections);
    }
    if let Some(directory) = &args.svg {
        std::fs::create_dir_all(directory).map_err(|error| {
            Failure::failed(format!("cannot make {}: {error}", directory.display()))
        })?;
    }
    let progress = Progress::new(!args.quiet && !args.outputs.take_stdout());
    let mut blocks = blocks(args)?;
    let runs = blocks.iter().map(|block| block.lines.len() * (args.repeat() + 1)).sum::<usize>();
    let bar = progress.runs(runs as u64);
    let mut bench = Bench { args, cpus: cpus::allowed(), bar, notes: Notes::default() };
    for block in &mut blocks {
        bench.measure(block)?;
    }
    bench.bar.finish_and_clear();
    let storage = Storage::under(Path::new(".")).map_err(Failure::from)?;
    let findings = Findings {
        machine: Machine::of(&storage),
        programs: args.programs()?,
        response_bytes: args.target.is_none().then(|| args.response_bytes()),
        client: args.client,
        notes: bench.notes.all().to_vec(),
        blocks,
    };
    if let Some(directory) = &args.svg {
        plot::files(&findings.blocks, directory)?;
    }
    report::write(&findings, &args.outputs)
}

/// The tables, without figures yet.
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

/// All that is started here.
fn subjects(args: &HttpArgs, cell: &Cell) -> Result<Vec<Subject>, Failure> {
    let ours = args.variants(cell.workers)?.into_iter().map(Subject::Ours);
    let others = args.programs()?.into_iter().filter(|one| one.takes(cell.workers));
    Ok(ours.chain(others.map(Subject::Program)).collect())
}

fn start(
    args: &HttpArgs,
    cell: Cell,
    subject: &Subject,
    cpus: &[usize],
) -> Result<Box<dyn ServerProcess>, Failure> {
    let started = match subject {
        Subject::Ours(variant) => Process::start(args, &cell, *variant, cpus),
        Subject::Program(program) => program.start(&cell, cpus),
        Subject::Target => unreachable!("nobody starts it"),
    };
    started.map_err(|error| {
        Failure::failed(format!("the server `{}` did not start: {error}", subject.label()))
    })
}

/// What the load is told.
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
    /// All servers in turns, round by round, and a last round that counts system calls.
    fn measure(&mut self, block: &mut Block) -> Result<(), Failure> {
        open_files::allow(block.cell.connections)?;
        for round in 0..=self.args.repeat() {
            let mut order: Vec<usize> = (0..block.lines.len()).collect();
            // Every second round goes backwards, so that a drift within a round does not always
            // favour the same one.
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
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
            Client::Own => self.own(cell, &mut *server, &split, line),
            client => self.others(client, cell, &mut *server, &split, line),
        };
        result.map_err(|error| failed(line, &cell, error, server.complaint()))
    }

    fn own(
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

    fn others(
        &self,
        client: Client,
        cell: Cell,
        server: &mut dyn ServerProcess,
        split: &CpuSplit,
        line: &mut Line,
    ) -> io::Result<()> {
        let before = server.used()?;
        let said =
            other_clients::drive(client, server.addr(), &cell, self.args.extent(), &split.load)?;
        line.samples.push(Sample {
            requests: said.requests,
            errors: said.errors,
            requests_per_second: said.requests_per_second,
            used: Some(server.used()?.since(before)),
            load: None,
            p50_us: said.p50_us,
            p99_us: said.p99_us,
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
                self.notes
                    .add(format!("system calls are not counted: perf's counter says {error}"));
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
        let result = result.map_err(|error| failed(line, &cell, error, server.complaint()))?;
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

/// The server's own words are better than those of who talked to it.
fn failed(line: &Line, cell: &Cell, error: io::Error, complaint: Option<String>) -> Failure {
    let (label, connections) = (line.label(), cell.connections);
    let why = complaint.map_or_else(|| error.to_string(), |said| format!("it has ended, {said}"));
    Failure::failed(format!("`{label}` with {connections} connections: {why}"))
}
