//! Checks one seed: runs its program in a simulated world with faults.

use super::env::Env;
use super::{Outcome, Program, interpret};
use cringle::Builder;
use cringle::runtime::{Balance, DriverChoice};
use cringle::sim::World;
use cringle::sim::{Checker, Failure, Faults, Options, Rng, Stats};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Figures of a program that passed its check.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Checked {
    /// The number of its fibers, without the helpers that some statements start.
    pub fibers: usize,
    /// The virtual time that it took.
    pub elapsed: Duration,
    /// Whether the power was lost before the program ended.
    pub lost_power: bool,
    /// Operations and injected faults.
    pub stats: Stats,
}

/// How the run of a seed ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Well,
    /// The power is lost after the program.
    Crash,
    /// The power may be lost during the program.
    PowerLoss,
}

/// Runs the program of a seed in the simulated world of that seed.
///
/// A safety phase injects faults that the seed chooses; then a liveness phase without faults must
/// end the program. For some seeds the power fails. The function makes every check of the
/// simulator, and checks that the outcome is the expected one and that synced data survives a loss
/// of power.
///
/// # Errors
///
/// The check that failed. `cringle sim --seeds 1 --start SEED` repeats the run.
pub fn check(seed: u64) -> Result<Checked, Failure> {
    check_on(seed, drawn_workers(seed))
}

/// Runs the program of a seed as [`check`] does, on this number of workers.
///
/// # Errors
///
/// As [`check`].
pub fn check_on(seed: u64, workers: usize) -> Result<Checked, Failure> {
    check_in(seed, workers, |_, _| {})
}

/// Runs the program of a seed as [`check_on`] does, where fibers move or not.
///
/// # Errors
///
/// As [`check`].
pub fn check_balanced(seed: u64, workers: usize, balance: Balance) -> Result<Checked, Failure> {
    check_in(seed, workers, |world, _| world.set_balance(balance))
}

/// The number of workers that [`check`] uses.
fn drawn_workers(seed: u64) -> usize {
    1 + Rng::stream(seed, "number of workers").below(3) as usize
}

/// Checks a seed with a sabotaged simulation.
#[cfg(test)]
pub(crate) fn check_sabotaged(
    seed: u64,
    workers: usize,
    by: cringle::sim::Sabotage,
) -> Result<Checked, Failure> {
    check_in(seed, workers, |world, env| {
        world.sabotage(by);
        env.sabotage = Some(by);
    })
}

fn check_in(
    seed: u64,
    workers: usize,
    prepare: impl FnOnce(&mut World, &mut Env),
) -> Result<Checked, Failure> {
    let program = Program::new(seed);
    let mut rng = Rng::stream(seed, "world");
    let options = options(&program, &mut rng).workers(workers);
    let ending = match rng.below(4) {
        0 => Ending::Crash,
        1 => Ending::PowerLoss,
        _ => Ending::Well,
    };
    let mut world = World::new(seed, &options);
    let mut env = Env::new(Path::new("/"), world.faults(), ending == Ending::PowerLoss);
    prepare(&mut world, &mut env);
    let env = Arc::new(env);
    let body = || {
        let digest = interpret::run_body(&env, &program.root, None);
        env.main_has_ended();
        digest
    };
    let ran = match ending {
        Ending::PowerLoss => world.run_until_power_loss(body),
        Ending::Well | Ending::Crash => world.run(body).map(Some),
    };
    let failed = |checker, message| Failure::new(seed, checker, message);
    // Report what a fiber found before its consequences, but after what may have caused it.
    if !matches!(&ran, Err(cause) if is_cause(cause.checker))
        && let Some((checker, message)) = env.wrong().take()
    {
        return Err(failed(checker, message));
    }
    let ran = ran?;
    if let Some((checker, message)) = env.afterwards() {
        return Err(failed(checker, message));
    }
    let digest = match ran {
        Some(Ok(digest)) => Some(digest),
        Some(Err(_)) => return Err(failed(Checker::Outcome, "the main fiber ended early".into())),
        None => None,
    };
    if let Some(digest) = digest {
        let outcome = program.outcome(digest, |name| world.read(name));
        compare(&outcome, &program.expected()).map_err(|text| failed(Checker::Outcome, text))?;
    }
    if digest.is_some() && ending != Ending::Well {
        world.crash();
    }
    if let Some(lost) = env.lost(&program, |name| world.read(name)) {
        return Err(failed(Checker::Durability, lost));
    }
    let (fibers, elapsed, stats) = (program.fibers(), world.elapsed(), world.stats());
    Ok(Checked { fibers, elapsed, lost_power: digest.is_none(), stats })
}

/// Returns whether a failure of this check makes other checks fail.
fn is_cause(checker: Checker) -> bool {
    use Checker::{Buffers, Completions, Deadlock, Livelock, Setup};
    matches!(checker, Completions | Buffers | Setup | Deadlock | Livelock)
}

fn options(program: &Program, rng: &mut Rng) -> Options {
    let safety = Duration::from_micros(rng.magnitude(100, 1_000_000));
    let slowest = Duration::from_micros(rng.magnitude(10, 10_000));
    let options = Options::new()
        .faults(Faults::all())
        .swarm(true)
        .faults_for(safety)
        .latency(Duration::from_micros(1)..=slowest)
        .turn_limit(300_000);
    if rng.one_in(2) {
        // Each fiber that may wait for a peer needs an op; the others share one or two.
        return options.in_flight_limit(program.most_waiting() + 1 + rng.below(2) as u32);
    }
    options
}

fn compare(outcome: &Outcome, expected: &Outcome) -> Result<(), String> {
    for (name, content) in &expected.files {
        let Some(found) = outcome.files.get(name) else {
            return Err(format!("{name} is missing"));
        };
        if found.len() != content.len() {
            let (found, content) = (found.len(), content.len());
            return Err(format!("{name} has {found} bytes, not {content}"));
        }
        if let Some(at) = (0..content.len()).find(|&at| found[at] != content[at]) {
            let (found, content) = (found[at], content[at]);
            return Err(format!("byte {at} of {name} is {found}, not {content}"));
        }
    }
    if outcome.digest != expected.digest {
        return Err("the fibers observed unexpected values".into());
    }
    Ok(())
}

impl Program {
    fn outcome(&self, digest: u64, read: impl Fn(&str) -> Option<Vec<u8>>) -> Outcome {
        let mut files = BTreeMap::new();
        for name in self.expected().files.into_keys() {
            if let Some(content) = read(&name) {
                files.insert(name, content);
            }
        }
        self.mask(&mut files);
        Outcome { digest, files }
    }

    /// Runs the program on the default driver, with its files in `directory`. The outcome must be
    /// the [expected](Self::expected) one.
    ///
    /// # Errors
    ///
    /// The error of a runtime that cannot start; `Other` with the failure that a fiber found.
    pub fn run_on_ring(&self, workers: usize, directory: &Path) -> io::Result<Outcome> {
        self.run_on(DriverChoice::Auto, workers, directory)
    }

    /// Runs the program on the given driver.
    ///
    /// # Errors
    ///
    /// As [`run_on_ring`](Self::run_on_ring).
    pub fn run_on(
        &self,
        driver: DriverChoice,
        workers: usize,
        directory: &Path,
    ) -> io::Result<Outcome> {
        let env = Arc::new(Env::new(directory, Faults::none(), false));
        let run = || {
            let digest = interpret::run_body(&env, &self.root, None);
            env.main_has_ended();
            digest
        };
        let digest = Builder::new().workers(workers).driver(driver).run(run)?;
        let wrong = env.wrong().take().or_else(|| env.afterwards());
        match (wrong, digest) {
            (None, Ok(digest)) => {
                Ok(self.outcome(digest, |name| std::fs::read(env.path(name)).ok()))
            }
            (Some((_, text)), _) => Err(io::Error::other(text)),
            (None, Err(_)) => Err(io::Error::other("the main fiber ended early")),
        }
    }
}
