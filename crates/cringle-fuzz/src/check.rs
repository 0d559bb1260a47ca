//! One seed: its program in a world with faults, and what has to hold.

use super::env::Env;
use super::{Outcome, Program, interpret};
use cringle::Builder;
use cringle::runtime::DriverChoice;
use cringle::sim::World;
use cringle::sim::{Checker, Failure, Faults, Options, Rng, Stats};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What a checked program was.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Checked {
    /// Its fibers, without the helpers that some statements start.
    pub fibers: usize,
    /// The virtual time it took.
    pub elapsed: Duration,
    /// Whether the power was lost before it had ended.
    pub lost_power: bool,
    /// What was done, and what went wrong.
    pub stats: Stats,
}

/// How the run of a seed ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Well,
    /// The power is lost after it.
    Crash,
    /// The power may be lost within it.
    PowerLoss,
}

/// Runs the program of this seed in a world of this seed: a safety phase with faults, which ones the
/// seed draws too; then a liveness phase without, in which it has to end; for some seeds the power is
/// lost. Checks what every simulation checks, that the outcome is as expected, and that what was
/// synced is there after a loss of power.
///
/// # Errors
///
/// What failed. `cringle sim --seeds 1 --start SEED` runs the same again.
pub fn check(seed: u64) -> Result<Checked, Failure> {
    check_in(seed, |_, _| {})
}

/// The same, where something is done wrong on purpose.
#[cfg(test)]
pub(crate) fn check_sabotaged(seed: u64, by: cringle::sim::Sabotage) -> Result<Checked, Failure> {
    check_in(seed, |world, env| {
        world.sabotage(by);
        env.sabotage = Some(by);
    })
}

fn check_in(seed: u64, prepare: impl FnOnce(&mut World, &mut Env)) -> Result<Checked, Failure> {
    let program = Program::new(seed);
    let mut rng = Rng::stream(seed, "world");
    let options = options(&program, &mut rng);
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
        env.has_ended();
        digest
    };
    let ran = match ending {
        Ending::PowerLoss => world.run_until_power_loss(body),
        Ending::Well | Ending::Crash => world.run(body).map(Some),
    };
    let failed = |checker, message| Failure::new(seed, checker, message);
    // What a fiber found says more than what followed from it, but less than what it may stem from.
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
        Some(Err(_)) => return Err(failed(Checker::Outcome, "it was stopped".into())),
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

/// Whether other checks fail when this one has.
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
    match rng.one_in(2) {
        // Room for each fiber that may wait for a peer, and few more.
        true => options.in_flight_limit(program.most_waiting() + 1 + rng.below(2) as u32),
        false => options,
    }
}

fn compare(outcome: &Outcome, expected: &Outcome) -> Result<(), String> {
    for (name, content) in &expected.files {
        let Some(found) = outcome.files.get(name) else {
            return Err(format!("{name} is not there"));
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
    match outcome.digest == expected.digest {
        true => Ok(()),
        false => Err("the fibers have seen something else than they should".into()),
    }
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

    /// Runs it on the driver that a run has by default, with its files in this directory: its outcome must
    /// be the [expected](Self::expected) one, as in every simulation.
    ///
    /// # Errors
    ///
    /// What the system says where the runtime cannot start; `Other` with what a fiber found wrong.
    pub fn run_on_ring(&self, workers: usize, place: &Path) -> io::Result<Outcome> {
        self.run_on(DriverChoice::Auto, workers, place)
    }

    /// The same on this driver.
    ///
    /// # Errors
    ///
    /// As [`run_on_ring`](Self::run_on_ring).
    pub fn run_on(
        &self,
        driver: DriverChoice,
        workers: usize,
        place: &Path,
    ) -> io::Result<Outcome> {
        let env = Arc::new(Env::new(place, Faults::none(), false));
        let run = || {
            let digest = interpret::run_body(&env, &self.root, None);
            env.has_ended();
            digest
        };
        let digest = Builder::new().workers(workers).driver(driver).run(run)?;
        let wrong = env.wrong().take().or_else(|| env.afterwards());
        match (wrong, digest) {
            (None, Ok(digest)) => {
                Ok(self.outcome(digest, |name| std::fs::read(env.path(name)).ok()))
            }
            (Some((_, text)), _) => Err(io::Error::other(text)),
            (None, Err(_)) => Err(io::Error::other("it was stopped")),
        }
    }
}
