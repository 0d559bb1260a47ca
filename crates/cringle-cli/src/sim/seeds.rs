//! Tries the seeds on several threads. The simulations share nothing.

use crate::cli::SimArgs;
use cringle::sim::{self, Failure, Fault};
use cringle_fuzz::{Checked, check, check_on};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The results of all seeds.
pub(crate) struct SeedSummary {
    pub(crate) start: u64,
    /// Seeds that passed.
    pub(crate) passed: u64,
    pub(crate) seconds: f64,
    pub(crate) threads: usize,
    pub(crate) sums: Sums,
    /// The failure of the lowest seed that failed.
    pub(crate) failure: Option<Failure>,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Sums {
    pub(crate) fibers: u64,
    pub(crate) operations: u64,
    pub(crate) cancels: u64,
    pub(crate) power_losses: u64,
    pub(crate) virtual_time: Duration,
    pub(crate) faults: [u64; Fault::ALL.len()],
}

impl Sums {
    fn add(&mut self, checked: &Checked) {
        self.fibers += checked.fibers as u64;
        self.operations += checked.stats.operations;
        self.cancels += checked.stats.cancels;
        self.power_losses += u64::from(checked.lost_power);
        self.virtual_time = self.virtual_time.saturating_add(checked.elapsed);
        for (sum, count) in self.faults.iter_mut().zip(checked.stats.by_fault) {
            *sum += count;
        }
    }

    fn join(&mut self, other: &Sums) {
        self.fibers += other.fibers;
        self.operations += other.operations;
        self.cancels += other.cancels;
        self.power_losses += other.power_losses;
        self.virtual_time = self.virtual_time.saturating_add(other.virtual_time);
        for (sum, count) in self.faults.iter_mut().zip(other.faults) {
            *sum += count;
        }
    }
}

/// The state that the threads share.
pub(crate) struct SeedRun {
    start: u64,
    seeds: u64,
    workers: Option<usize>,
    canary: Option<u64>,
    /// The next seed to try, counted from the start.
    next: AtomicU64,
    /// The end of the seeds to try: a failed seed lowers it, so that only lower seeds are tried
    /// then.
    end: AtomicU64,
    bar: ProgressBar,
    sums: Mutex<(u64, Sums)>,
    failure: Mutex<Option<Failure>>,
}

impl SeedRun {
    pub(crate) fn over(args: &SimArgs) -> SeedSummary {
        let started = Instant::now();
        let threads = args.threads().min(args.seeds as usize).max(1);
        let run = SeedRun {
            start: args.start,
            seeds: args.seeds,
            workers: args.workers,
            canary: args.canary,
            next: AtomicU64::new(0),
            end: AtomicU64::new(args.seeds),
            bar: bar(args),
            sums: Mutex::default(),
            failure: Mutex::default(),
        };
        let threads = std::thread::scope(|scope| {
            let start = || std::thread::Builder::new().spawn_scoped(scope, || run.work());
            // With fewer threads than requested the run is slower, but complete.
            let others = (1..threads).map_while(|_| start().ok()).count();
            run.work();
            others + 1
        });
        run.bar.finish_and_clear();
        let (passed, sums) = *run.sums.lock().expect("no code panics under this lock");
        let failure = run.failure.into_inner().expect("no code panics under this lock");
        let seconds = started.elapsed().as_secs_f64();
        SeedSummary { start: args.start, passed, seconds, threads, sums, failure }
    }

    fn work(&self) {
        let (mut passed, mut sums) = (0, Sums::default());
        loop {
            let number = self.next.fetch_add(1, Relaxed);
            if number >= self.end.load(Relaxed).min(self.seeds) {
                break;
            }
            let seed = self.start.wrapping_add(number);
            let checked = match self.workers {
                _ if self.canary == Some(seed) => Err(canary(seed)),
                Some(workers) => check_on(seed, workers),
                None => check(seed),
            };
            match checked {
                Ok(checked) => {
                    passed += 1;
                    sums.add(&checked);
                }
                Err(failure) => self.failed(number, failure),
            }
            self.bar.inc(1);
        }
        let mut all = self.sums.lock().expect("no code panics under this lock");
        all.0 += passed;
        all.1.join(&sums);
    }

    fn failed(&self, number: u64, failure: Failure) {
        let mut known = self.failure.lock().expect("no code panics under this lock");
        if number < self.end.fetch_min(number, Relaxed) {
            *known = Some(failure);
        }
    }
}

/// Returns the failure of a simulation that always fails.
fn canary(seed: u64) -> Failure {
    let options = sim::Options::new();
    sim::run(seed, &options, cringle::fiber::park).expect_err("no fiber unparks it")
}

fn bar(args: &SimArgs) -> ProgressBar {
    if args.quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "[{bar:30}] {pos}/{len} seeds, {per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    // Drawn only a few times per second, because drawing takes CPU time from the simulations.
    let target = ProgressDrawTarget::stderr_with_hz(4);
    let bar = ProgressBar::with_draw_target(Some(args.seeds), target);
    bar.set_style(style.progress_chars("=> "));
    bar
}
