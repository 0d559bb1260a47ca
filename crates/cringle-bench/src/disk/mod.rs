//! `cringle bench disk`: every strategy on the same accesses, in turns.
//!
//! A machine's speed drifts (clocks, neighbours, a device's own housekeeping), so the
//! strategies take turns: one round runs each once, and the figures are medians over the
//! rounds. Every second round goes backwards, so that a drift within a round does not always
//! favour the same one.

pub mod args;
mod job;
mod json;
mod plan;
mod report;
pub mod results;
mod sanity;
mod schedule;
mod sentences;
pub mod strategies;
mod table;
mod verify;
mod wal;

use crate::latency::Latencies;
use crate::meter::Gate;
use crate::notes::Notes;
use crate::progress::Progress;
use crate::target::{Kind, Target, TargetSpec};
pub use args::DiskArgs;
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::cpus::Pinning;
use cringle_report::machine::{Machine, storage::Storage};
use job::Job;
pub use job::Profile;
pub use plan::Direction;
use plan::{Limit, Plan};
use results::{Cell, Run, Sample};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use strategies::{Outcome, Strategy};
use wal::Log;

/// What the whole command found.
pub struct Findings {
    pub machine: Machine,
    pub direction: Direction,
    pub runs: Vec<Run>,
    pub notes: Vec<String>,
}

pub fn run(args: &DiskArgs, verbose: bool) -> Result<(), Failure> {
    args.validate()?;
    args.outputs.check()?;
    if verbose {
        cringle_report::complain(&crate::describe_driver());
    }
    report::write(&measure(args)?, &args.outputs)
}

pub fn measure(args: &DiskArgs) -> Result<Findings, Failure> {
    let mut bench = Bench::new(args)?;
    for profile in args.profiles() {
        bench.profile(profile)?;
    }
    Ok(bench.finish())
}

struct Bench<'a> {
    args: &'a DiskArgs,
    strategies: Vec<Strategy>,
    storage: Storage,
    pinning: Pinning,
    progress: Progress,
    notes: Notes,
    /// The file of the reading profiles, which they share.
    data: Option<Arc<Target>>,
    /// It was asked for, and the device can.
    iopoll: bool,
    runs: Vec<Run>,
    /// Counts the runs; writes bear it.
    generation: u64,
}

impl<'a> Bench<'a> {
    fn new(args: &'a DiskArgs) -> Result<Bench<'a>, Failure> {
        let mut notes = Notes::default();
        let strategies = available(args, &mut notes)?;
        let storage = Storage::under(&args.path).map_err(|error| {
            Failure::failed(format!("cannot look at {}: {error}", args.path.display()))
        })?;
        Ok(Bench {
            args,
            strategies,
            storage,
            pinning: Pinning::new(args.pin),
            progress: Progress::new(!args.quiet),
            notes,
            data: None,
            iopoll: false,
            runs: Vec::new(),
            generation: 0,
        })
    }

    fn finish(self) -> Findings {
        Findings {
            machine: Machine::of(&self.storage),
            direction: self.args.rw,
            runs: self.runs,
            notes: self.notes.all().to_vec(),
        }
    }

    fn profile(&mut self, profile: Profile) -> Result<(), Failure> {
        let target = self.target(profile)?;
        sanity::place(&target, &self.storage, &mut self.notes)?;
        let direction = self.direction(profile);
        let block = self.args.block_of(profile);
        if profile.direct() {
            sanity::direct(&target, block, &self.storage)?;
            self.iopoll = self.args.iopoll && sanity::polled(&target, &mut self.notes)?;
        }
        let cells =
            schedule::cells(self.args, &self.strategies, profile, direction, &mut self.notes);
        let limit = schedule::limit(self.args, profile, &target);
        let measured = self.plan(profile, &target, limit)?;
        let warming = self.plan(profile, &target, schedule::share(limit))?;
        let warmups = self.args.warmup;
        let rounds = warmups + self.args.repeat;
        let bar = self.progress.runs((rounds * cells.len()) as u64);
        let mut runs: Vec<Run> = cells.iter().map(|cell| Run::new(*cell)).collect();
        for round in 0..rounds {
            let plan = if round < warmups { &warming } else { &measured };
            for at in schedule::turn(round, runs.len()) {
                let cell = runs[at].cell;
                bar.set_message(format!("{} {}", profile.name(), cell.described()));
                let (sample, latencies) = self.measure(&cell, plan, &target)?;
                bar.inc(1);
                if round >= warmups {
                    runs[at].latencies.merge(&latencies);
                    runs[at].samples.push(sample);
                }
            }
        }
        bar.finish_and_clear();
        verify::agreement(&runs, limit)?;
        self.runs.append(&mut runs);
        Ok(())
    }

    fn direction(&self, profile: Profile) -> Direction {
        if profile == Profile::Wal { Direction::Write } else { self.args.rw }
    }

    fn target(&mut self, profile: Profile) -> Result<Arc<Target>, Failure> {
        if let (Some(data), false) = (&self.data, profile == Profile::Wal) {
            return Ok(Arc::clone(data));
        }
        let spec = TargetSpec {
            path: self.args.path.clone(),
            size: self.args.size,
            files: self.args.files,
            block: self.args.block_of(profile) as u64,
            seed: self.args.seed,
            writes: self.direction(profile).writes(),
            destroy: self.args.destroy,
            empty: profile == Profile::Wal,
        };
        let target = Arc::new(Target::prepare(&spec, &self.progress)?);
        if profile != Profile::Wal {
            self.data = Some(Arc::clone(&target));
        } else if target.kind != Kind::Temporary {
            // The log takes the place of what the others read.
            self.data = None;
        }
        Ok(target)
    }

    fn plan(
        &mut self,
        profile: Profile,
        target: &Target,
        limit: Limit,
    ) -> Result<Arc<Plan>, Failure> {
        let direction = self.direction(profile);
        let mut plan = Plan::new(&schedule::shape(self.args, profile, direction, target, limit));
        if profile == Profile::Wal {
            schedule::spread_over_files(&mut plan, target.files.len());
            return Ok(Arc::new(plan));
        }
        let words = verify::first_words(&plan, target, &self.progress)?;
        sanity::content(target, &words, &mut self.notes);
        let mut words = words.into_iter();
        plan.expect(|_| words.next().unwrap_or(0));
        Ok(Arc::new(plan))
    }

    fn measure(
        &mut self,
        cell: &Cell,
        plan: &Arc<Plan>,
        target: &Arc<Target>,
    ) -> Result<(Sample, Latencies), Failure> {
        let resident = sanity::prepare_cache(cell.profile, target, &mut self.notes)?;
        self.generation += 1;
        let writes = self.direction(cell.profile).writes();
        let job = Arc::new(Job {
            profile: cell.profile,
            plan: Arc::clone(plan),
            target: Arc::clone(target),
            queue_depth: cell.queue_depth,
            threads: cell.threads,
            fixed: cell.fixed,
            iopoll: self.iopoll,
            writes,
            pinning: self.pinning.clone(),
            sampling: schedule::sampling(cell.profile),
            generation: self.generation,
            log: (cell.profile == Profile::Wal).then(|| Log::begin(target)).transpose()?,
            stop: AtomicBool::new(false),
            gate: gate(cell, target, writes),
        });
        let named =
            |error: Failure| Failure::failed(format!("`{}` failed: {error}", cell.described()));
        let outcome =
            within_limit(&job, || cell.strategy.run(&job)).map_err(|error| named(error.into()))?;
        let result = sampled(&job, cell, outcome)?;
        sanity::direct_stayed_direct(cell, target, plan, resident, &mut self.notes)?;
        if cell.strategy == Strategy::Fio && self.args.rw == Direction::RandRw {
            // fio wrote its own content; later reads expect ours.
            target.fill(&Progress::new(false))?;
        }
        Ok(result)
    }
}

/// Without those that this machine has not got; unless the user named one of them.
fn available(args: &DiskArgs, notes: &mut Notes) -> Result<Vec<Strategy>, Failure> {
    let mut available = Vec::new();
    for strategy in args.strategies() {
        match strategy.missing() {
            None => available.push(strategy),
            Some(why) if args.names(strategy) => {
                return fail(format!("--strategies names {}: {why}", strategy.name()));
            }
            Some(why) => notes.add(format!("{} is left out: {why}", strategy.name())),
        }
    }
    Ok(available)
}

/// Writes through the page cache have only begun when the calls return; in `buffered-seq` the
/// clock runs until they are on the device. (`cached` measures the calls alone.)
fn gate(cell: &Cell, target: &Arc<Target>, writes: bool) -> Gate {
    let gate = Gate::new(cell.strategy.parties(cell.threads));
    if !(writes && cell.profile == Profile::BufferedSeq) {
        return gate;
    }
    let target = Arc::clone(target);
    gate.with_ending(move || target.files.iter().try_for_each(|file| file.0.sync_data()))
}

/// Runs `work` with a timekeeper beside it, if the run is limited by time.
fn within_limit<T>(job: &Job, work: impl FnOnce() -> T) -> T {
    match job.plan.limit {
        Limit::Ops(_) => work(),
        Limit::Seconds(seconds) => std::thread::scope(|scope| {
            scope.spawn(|| job.gate.stop_after(Duration::from_secs_f64(seconds), &job.stop));
            work()
        }),
    }
}

fn sampled(job: &Job, cell: &Cell, outcome: Outcome) -> Result<(Sample, Latencies), Failure> {
    let mut latencies = Latencies::new();
    match outcome {
        Outcome::Reported(report) => {
            let sample = Sample {
                ops: report.ops,
                usage: report.usage,
                checksum: None,
                // It measures an append and its sync apart, and a commit is both.
                p50_us: report.p50_us.filter(|_| cell.profile != Profile::Wal),
                p99_us: report.p99_us.filter(|_| cell.profile != Profile::Wal),
            };
            Ok((sample, latencies))
        }
        Outcome::Measured(lanes) => {
            let name = cell.described();
            let checksum = verify::lanes(job, &lanes, &name)?;
            verify::written(job, &lanes, &name)?;
            let Some(usage) = job.gate.usage() else {
                return fail(format!(
                    "`{name}` did not come to its end: the files could not be synced"
                ));
            };
            let ops = lanes.iter().map(|lane_result| lane_result.ops).sum();
            for lane_result in lanes {
                latencies.record(lane_result.latencies_ns);
            }
            let (p50_us, p99_us) = (latencies.quantile_us(0.5), latencies.quantile_us(0.99));
            Ok((Sample { ops, usage, checksum: Some(checksum), p50_us, p99_us }, latencies))
        }
    }
}
