//! `cringle bench disk`: runs every strategy on the same accesses, in turns.
//!
//! The speed of a machine drifts (clock rates, other load, housekeeping of the device), so the
//! strategies take turns: a round runs each of them once, in an order that alternates
//! ([`turns`]), and the figures are the medians of the rounds.

pub mod args;
mod job;
mod plan;
mod report;
pub mod results;
mod sanity;
mod schedule;
mod sentences;
pub mod strategies;
mod verify;
mod wal;

use crate::experiment::{Named, Notes};
use crate::latency::Latencies;
use crate::meter::Gate;
use crate::rounds::{Progress, turns};
use crate::target::{Kind, Target, TargetSpec};
pub use args::DiskArgs;
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::{Machine, storage::Storage};
use job::Job;
pub use job::Profile;
pub use plan::Direction;
use plan::{Limit, Plan, Shape};
use results::{DiskSample, Run, Setting};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use strategies::{Outcome, Strategy};
use wal::Log;

/// The results of all profiles.
pub struct DiskFindings {
    machine: Machine,
    direction: Direction,
    pub runs: Vec<Run>,
    notes: Notes,
    /// The load average of the last minute before the first run.
    load: Option<f64>,
}

/// Runs the experiment without writing a report.
pub fn measure(args: &DiskArgs) -> Result<DiskFindings, Failure> {
    let mut bench = DiskBench::new(args)?;
    for profile in args.profiles() {
        bench.profile(profile)?;
    }
    Ok(bench.finish())
}

struct DiskBench<'a> {
    args: &'a DiskArgs,
    strategies: Vec<Strategy>,
    storage: Storage,
    progress: Progress,
    notes: Notes,
    /// The file that all profiles but `wal` share.
    data: Option<Arc<Target>>,
    /// Whether `--iopoll` is given and the device has polled queues.
    iopoll: bool,
    runs: Vec<Run>,
    load: Option<f64>,
    /// The number of the latest run, which its writes leave in their blocks.
    generation: u64,
}

impl<'a> DiskBench<'a> {
    fn new(args: &'a DiskArgs) -> Result<DiskBench<'a>, Failure> {
        let mut notes = Notes::default();
        let strategies = available(args, &mut notes)?;
        Ok(DiskBench {
            args,
            strategies,
            storage: crate::storage_under(&args.path)?,
            progress: Progress::new(!args.outputs.quiet),
            data: None,
            iopoll: false,
            runs: Vec::new(),
            load: sanity::note_load(&mut notes),
            notes,
            generation: 0,
        })
    }

    fn finish(self) -> DiskFindings {
        DiskFindings {
            machine: Machine::of(&self.storage),
            direction: self.args.rw,
            runs: self.runs,
            notes: self.notes,
            load: self.load,
        }
    }

    fn profile(&mut self, profile: Profile) -> Result<(), Failure> {
        let target = self.target(profile)?;
        sanity::examine_target(&target, &self.storage, &mut self.notes)?;
        let direction = self.direction(profile);
        if profile.is_direct() {
            let (storage, notes) = (&self.storage, &mut self.notes);
            sanity::require_direct(&target, self.args.block(), direction, storage, notes)?;
            self.iopoll = self.args.iopoll && sanity::can_poll(&target, &mut self.notes)?;
        }
        let mut strategies = self.strategies.clone();
        if profile == Profile::Wal && target.kind == Kind::BlockDevice {
            self.notes.add("log is left out of `wal`: a log is a file, not a device");
            strategies.retain(|strategy| *strategy != Strategy::Log);
        }
        let settings =
            schedule::settings(self.args, &strategies, profile, direction, &mut self.notes);
        let limit = schedule::limit(self.args, profile);
        let measured = self.plan(profile, &target, limit)?;
        let warmup = self.plan(profile, &target, schedule::warmup_limit(limit))?;
        let mut runs: Vec<Run> = settings.into_iter().map(Run::new).collect();
        let rounds = &self.args.rounds;
        let bar = self.progress.runs(rounds.total() * runs.len());
        for (round, is_measured) in rounds.all() {
            let plan = if is_measured { &measured } else { &warmup };
            turns((round, is_measured), &mut runs, &bar, |setting| {
                self.measure(setting, plan, &target)
            })?;
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
            block: self.args.block() as u64,
            seed: self.args.seed,
            writes: self.direction(profile).writes(),
            destroy: self.args.destroy,
            empty: profile == Profile::Wal,
        };
        let target = Arc::new(Target::prepare(&spec, &self.progress)?);
        if profile != Profile::Wal {
            self.data = Some(Arc::clone(&target));
        } else if target.kind != Kind::Temporary {
            // The log has overwritten the data.
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
        let mut plan = Plan::new(&Shape {
            direction: self.direction(profile),
            block: self.args.block(),
            file_bytes: target.file_bytes,
            limit,
            seed: self.args.seed,
        });
        if profile == Profile::Wal {
            return Ok(Arc::new(plan));
        }
        let words = verify::first_words(&plan, target, &self.progress)?;
        sanity::examine_content(target, &words, &mut self.notes);
        let mut words = words.into_iter();
        plan.expect(|_| words.next().unwrap_or(0));
        Ok(Arc::new(plan))
    }

    fn measure(
        &mut self,
        setting: &Setting,
        plan: &Arc<Plan>,
        target: &Arc<Target>,
    ) -> Result<(DiskSample, Latencies), Failure> {
        let resident = sanity::prepare_cache(setting.profile, target, &mut self.notes)?;
        self.generation += 1;
        let writes = self.direction(setting.profile).writes();
        let job = Arc::new(Job {
            setting: *setting,
            plan: Arc::clone(plan),
            target: Arc::clone(target),
            iopoll: self.iopoll,
            writes,
            sampling: schedule::sampling(setting.profile),
            generation: self.generation,
            log: (setting.profile == Profile::Wal).then(|| Log::begin(target)).transpose()?,
            stop: AtomicBool::new(false),
            gate: Gate::new(setting.strategy.parties(setting.threads)),
        });
        let named = |error| Failure::failed(format!("`{}` failed: {error}", setting.name()));
        let outcome = within_limit(&job, || setting.strategy.run(&job))
            .map_err(|error| named(with_remedy(error)))?;
        let result = check_and_sample(&job, outcome)?;
        let direction = self.direction(setting.profile);
        let subject = (setting, direction);
        sanity::note_fallback_to_cache(subject, target, plan, resident, &mut self.notes)?;
        Ok(result)
    }
}

/// Explains the failure of a run: of those that it makes, only the call that starts a thread fails
/// with `EAGAIN`. The rings have explained theirs.
fn with_remedy(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => crate::no_thread(&error, strategies::FEWER),
        _ => error,
    }
}

/// Returns the chosen strategies that this machine has. Fails if the command line names one that is
/// missing.
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

/// Runs `work`, with a thread that stops it if the run is limited by time.
fn within_limit<T>(job: &Job, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match job.plan.limit {
        Limit::Ops(_) => work(),
        Limit::Seconds(seconds) => std::thread::scope(|scope| {
            let limit = || job.gate.stop_after(Duration::from_secs_f64(seconds), &job.stop);
            std::thread::Builder::new().spawn_scoped(scope, limit)?;
            work()
        }),
    }
}

/// Checks what a run has read and written, and returns its figures.
fn check_and_sample(job: &Job, outcome: Outcome) -> Result<(DiskSample, Latencies), Failure> {
    let setting = &job.setting;
    let mut latencies = Latencies::new();
    match outcome {
        Outcome::Reported(report) => {
            let sample = DiskSample {
                ops: report.ops,
                usage: report.usage,
                checksum: None,
                p50_us: report.p50_us,
                p99_us: report.p99_us,
            };
            Ok((sample, latencies))
        }
        Outcome::Measured(lanes) => {
            let checksum = verify::checksum(job, &lanes)?;
            verify::written(job, &lanes)?;
            let Some(usage) = job.gate.usage() else {
                return fail(format!("`{}` ended before it began", setting.name()));
            };
            let ops = lanes.iter().map(|lane_result| lane_result.ops).sum();
            for lane_result in lanes {
                latencies.record(lane_result.latencies_ns);
            }
            let (p50_us, p99_us) = (latencies.quantile_us(0.5), latencies.quantile_us(0.99));
            Ok((DiskSample { ops, usage, checksum: Some(checksum), p50_us, p99_us }, latencies))
        }
    }
}
