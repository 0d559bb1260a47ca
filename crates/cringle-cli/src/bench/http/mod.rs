//! `cringle bench http`: servers that answer every request with the same small page, in the shape of the
//! measurements in the papers on MIO and URingManager.
//!
//! Each run has a server in a process of its own and the load in this one, on other processors. The
//! servers take turns; CPU and context switches are the server's, between the first request that counts
//! and the last answer.

mod answer;
mod args;
mod child;
mod limits;
mod load;
mod place;
mod plot;
mod report;
mod serve;
mod servers;
mod site;
mod syscalls;
mod tools;
mod words;

pub(crate) use args::HttpArgs;

use super::checks::Notes;
use super::latency::Latencies;
use super::meter::{Meter, Usage};
use super::progress::Progress;
use crate::failure::{Failure, fail};
use crate::machine::{Machine, cpus, storage::Storage};
use answer::Expected;
use args::{Cell, Client, Variant};
use child::Process;
use indicatif::ProgressBar;
use place::Places;
use site::Site;
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
    usage: Option<Usage>,
    /// Of a processor's time, what the load took of those it has; where it is made here.
    load_busy: Option<f64>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
}

impl Sample {
    fn per_request(&self, of: impl Fn(&Usage) -> f64) -> Option<f64> {
        self.usage.as_ref().map(|usage| of(usage) / self.requests.max(1) as f64)
    }

    fn cpu_us(&self) -> Option<f64> {
        self.per_request(|usage| usage.cpu_seconds() * 1e6)
    }

    fn context_switches(&self) -> Option<f64> {
        self.per_request(|usage| usage.context_switches as f64)
    }
}

/// A line of a table.
struct Line {
    /// `None` is a server that somebody else has started.
    variant: Option<Variant>,
    /// In the order of the rounds.
    samples: Vec<Sample>,
    /// Of all samples together.
    latencies: Latencies,
    syscalls: Option<f64>,
}

impl Line {
    fn new(variant: Option<Variant>) -> Line {
        Line { variant, samples: Vec::new(), latencies: Latencies::new(), syscalls: None }
    }

    fn label(&self) -> String {
        self.variant.map_or_else(|| "target".into(), Variant::label)
    }

    fn median(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        crate::stats::median(self.samples.iter().filter_map(of))
    }

    fn rate(&self) -> f64 {
        self.median(|sample| Some(sample.requests_per_second)).unwrap_or(f64::NAN)
    }
}

struct Block {
    cell: Cell,
    lines: Vec<Line>,
}

impl Block {
    fn line(&self, server: args::Server) -> Option<&Line> {
        let whole = Some(Variant { server, ablated: None });
        self.lines.iter().find(|line| line.variant == whole)
    }
}

struct Findings {
    machine: Machine,
    response_bytes: Option<usize>,
    client: Client,
    blocks: Vec<Block>,
    notes: Vec<String>,
}

pub(crate) fn run(args: &HttpArgs, verbose: bool) -> Result<(), Failure> {
    args.validate()?;
    if let Some(addr) = &args.listen {
        return serve::run(args, addr);
    }
    if !args.client.is_there() {
        let name = args.client.program().unwrap_or_default();
        return fail(format!("`{name}` cannot be run: install it, or leave out --client"));
    }
    if verbose {
        crate::report::complain(&super::driver_words());
    }
    if let Some(directory) = &args.svg {
        std::fs::create_dir_all(directory).map_err(|error| {
            Failure::failed(format!("cannot make {}: {error}", directory.display()))
        })?;
    }
    let progress = Progress::new(!args.quiet && !crate::report::is_stdout(args.json.as_deref()));
    let mut blocks = blocks(args)?;
    let runs = blocks.iter().map(|block| block.lines.len() * (args.repeat + 1)).sum::<usize>();
    let bar = progress.runs(runs as u64);
    let mut bench = Bench { args, cpus: cpus::allowed(), bar, notes: Notes::default() };
    for block in &mut blocks {
        bench.measure(block)?;
    }
    bench.bar.finish_and_clear();
    let storage = Storage::under(Path::new(".")).map_err(Failure::from)?;
    let findings = Findings {
        machine: Machine::of(&storage),
        response_bytes: args.target.is_none().then(|| args.response_bytes()),
        client: args.client,
        notes: bench.notes.all().to_vec(),
        blocks,
    };
    if let Some(directory) = &args.svg {
        plot::all(&findings.blocks, directory)?;
    }
    report::tell(&findings, args.json.as_deref())
}

/// The tables, without figures yet.
fn blocks(args: &HttpArgs) -> Result<Vec<Block>, Failure> {
    let block = |cell: Cell| {
        let lines = match args.target {
            Some(_) => vec![Line::new(None)],
            None => {
                let variants = args.variants(cell.workers)?.into_iter();
                variants.map(|variant| Line::new(Some(variant))).collect()
            }
        };
        Ok(Block { cell, lines })
    };
    args.cells().into_iter().map(block).collect()
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
        limits::allow(block.cell.connections)?;
        for round in 0..=self.args.repeat {
            let mut order: Vec<usize> = (0..block.lines.len()).collect();
            // Every second round goes backwards, so that a drift within a round does not always
            // favour the same one.
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let line = &mut block.lines[index];
                self.bar.set_message(line.label());
                if round < self.args.repeat {
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
        let Some(variant) = line.variant else {
            let addr = serve::resolve(self.args.target.as_deref().unwrap_or_default())?;
            return self.load_alone(cell, addr, line);
        };
        let places = Places::of(&self.cpus, cell.workers, &mut self.notes);
        let mut server = self.start(cell, variant, &places)?;
        let result = match self.args.client {
            Client::Own => self.own(cell, &mut server, &places, line),
            client => self.others(client, cell, &mut server, &places, line),
        };
        result.map_err(|error| failed(line, &cell, error, server.complaint()))
    }

    fn start(&self, cell: Cell, variant: Variant, places: &Places) -> Result<Process, Failure> {
        Process::start(self.args, &cell, variant, &places.server).map_err(|error| {
            Failure::failed(format!("the server `{}` did not start: {error}", variant.label()))
        })
    }

    fn own(
        &self,
        cell: Cell,
        server: &mut Process,
        places: &Places,
        line: &mut Line,
    ) -> io::Result<()> {
        let plan = self.plan(cell, server.addr, places, false);
        let server = std::cell::RefCell::new(server);
        let mut used = Usage::default();
        let started = || {
            let before = server.borrow_mut().usage()?;
            Ok((before, Meter::start()))
        };
        let mut mine = Usage::default();
        let tally = load::drive(&plan, started, |(before, meter)| {
            mine = meter.stop();
            used = since(server.borrow_mut().usage()?, before);
            Ok(())
        })?;
        used.seconds = mine.seconds;
        let busy = mine.cpu_seconds() / mine.seconds / plan.cpus.len().max(1) as f64;
        line.latencies.merge(&tally.latencies);
        line.samples.push(sample(&tally, mine.seconds, Some(used), busy));
        Ok(())
    }

    fn others(
        &self,
        client: Client,
        cell: Cell,
        server: &mut Process,
        places: &Places,
        line: &mut Line,
    ) -> io::Result<()> {
        let before = server.usage()?;
        let said = tools::drive(client, server.addr, &cell, self.args.extent(), &places.load)?;
        line.samples.push(Sample {
            requests: said.requests,
            errors: said.errors,
            requests_per_second: said.requests_per_second,
            usage: Some(since(server.usage()?, before)),
            load_busy: None,
            p50_us: said.p50_us,
            p99_us: said.p99_us,
            p999_us: None,
        });
        Ok(())
    }

    fn load_alone(&self, cell: Cell, addr: SocketAddr, line: &mut Line) -> Result<(), Failure> {
        let places = Places { server: Vec::new(), load: self.cpus.clone() };
        let plan = self.plan(cell, addr, &places, true);
        let mut mine = Usage::default();
        let tally = load::drive(
            &plan,
            || Ok(Meter::start()),
            |meter| {
                mine = meter.stop();
                Ok(())
            },
        );
        let tally = tally.map_err(|error| failed(line, &cell, error, None))?;
        let busy = mine.cpu_seconds() / mine.seconds / plan.cpus.len().max(1) as f64;
        line.latencies.merge(&tally.latencies);
        line.samples.push(sample(&tally, mine.seconds, None, busy));
        Ok(())
    }

    fn plan(&self, cell: Cell, addr: SocketAddr, places: &Places, any: bool) -> load::Plan {
        let page = || Site::new(self.args.response_bytes(), !cell.keepalive).response;
        load::Plan {
            addr,
            connections: cell.connections,
            keepalive: cell.keepalive,
            extent: self.args.extent(),
            expected: if any { Expected::Good } else { Expected::Exactly(page()) },
            cpus: places.load.clone(),
        }
    }

    fn count_syscalls(&mut self, cell: Cell, line: &mut Line) -> Result<(), Failure> {
        let Some(variant) = line.variant else { return Ok(()) };
        let places = Places::of(&self.cpus, cell.workers, &mut self.notes);
        let mut server = self.start(cell, variant, &places)?;
        let counter = match syscalls::Counter::of(server.id()) {
            Ok(counter) => std::cell::RefCell::new(counter),
            Err(error) => {
                self.notes
                    .say(format!("system calls are not counted: perf's counter says {error}"));
                return Ok(());
            }
        };
        let plan = self.plan(cell, server.addr, &places, false);
        let read = || counter.borrow_mut().read();
        let mut calls = 0;
        let tally = load::drive(&plan, read, |before| {
            calls = read()? - before;
            Ok(())
        });
        let tally = tally.map_err(|error| failed(line, &cell, error, server.complaint()))?;
        line.syscalls = Some(calls as f64 / tally.requests.max(1) as f64);
        Ok(())
    }
}

fn sample(tally: &load::Tally, seconds: f64, usage: Option<Usage>, busy: f64) -> Sample {
    Sample {
        requests: tally.requests,
        errors: tally.errors,
        requests_per_second: tally.requests as f64 / seconds,
        usage,
        load_busy: Some(busy),
        p50_us: tally.latencies.quantile_us(0.50),
        p99_us: tally.latencies.quantile_us(0.99),
        p999_us: tally.latencies.quantile_us(0.999),
    }
}

fn since(now: Usage, before: Usage) -> Usage {
    Usage {
        seconds: 0.0,
        user_seconds: now.user_seconds - before.user_seconds,
        system_seconds: now.system_seconds - before.system_seconds,
        context_switches: now.context_switches - before.context_switches,
    }
}

/// The server's own words are better than those of who talked to it.
fn failed(line: &Line, cell: &Cell, error: io::Error, complaint: Option<String>) -> Failure {
    let (label, connections) = (line.label(), cell.connections);
    let why = complaint.map_or_else(|| error.to_string(), |said| format!("it has ended, {said}"));
    Failure::failed(format!("`{label}` with {connections} connections: {why}"))
}
