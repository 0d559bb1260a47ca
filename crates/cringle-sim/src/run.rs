//! Running a simulation for one seed, or for many.

use super::{Failure, Options, Stats, World};
use std::time::Duration;

/// The result of a simulated run.
///
/// ```
/// use cringle::sim::{self, Report};
///
/// let Report { value, elapsed, .. } = sim::run(7, &sim::Options::new(), || 6 * 7)?;
/// println!("{value} after {elapsed:?} of virtual time");
/// # Ok::<(), sim::Failure>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report<T> {
    /// The closure's return value.
    pub value: T,
    /// The duration of the run in virtual time.
    pub elapsed: Duration,
    /// The numbers of operations and of injected faults.
    pub stats: Stats,
}

/// Runs `f` as [`cringle::run`](cringle_run::run::run) does, in a new [`World`]. See the
/// [module](crate).
///
/// ```
/// use cringle::{fiber, sim};
///
/// let report = sim::run(7, &sim::Options::new(), || fiber::spawn(|| 6 * 7).join().unwrap())?;
/// assert_eq!(report.value, 42);
/// # Ok::<(), sim::Failure>(())
/// ```
///
/// # Errors
///
/// The finding of a [`Checker`](super::Checker), or the panic of `f`.
///
/// # Panics
///
/// Within another run, simulated or not.
pub fn run<T>(seed: u64, options: &Options, f: impl FnOnce() -> T) -> Result<Report<T>, Failure> {
    let mut world = World::new(seed, options);
    let value = world.run(f)?;
    Ok(Report { value, elapsed: world.elapsed(), stats: world.stats() })
}

/// The environment variable that makes [`each`] run only one seed.
const REPLAY: &str = "CRINGLE_SIM_SEED";

/// Calls `f` with each seed, for a test over many simulations. `f` creates a [`World`] or calls
/// [`run`].
///
/// ```
/// use cringle::{fiber, sim};
///
/// sim::each(0..20, |seed| {
///     sim::run(seed, &sim::Options::new(), || fiber::spawn(|| 6 * 7).join().unwrap())?;
///     Ok(())
/// });
/// ```
///
/// # Panics
///
/// At the first seed that fails, with the command that runs only this seed:
/// `CRINGLE_SIM_SEED=17 cargo test NAME_OF_THE_TEST`. If `f` panics, the command is on standard
/// error.
pub fn each(seeds: impl IntoIterator<Item = u64>, mut f: impl FnMut(u64) -> Result<(), Failure>) {
    let replayed = std::env::var(REPLAY).ok().and_then(|text| text.parse().ok());
    let mut check = |seed| {
        let named = NamedIfPanicking(seed);
        let result = f(seed);
        drop(named);
        if let Err(failure) = result {
            panic!("{failure}\n  to replay it: {REPLAY}={seed} cargo test …");
        }
    };
    match replayed {
        Some(seed) => check(seed),
        None => seeds.into_iter().for_each(check),
    }
}

/// Prints the command that repeats a seed, if the seed's test panics: a check of the test outside
/// of a run does not know its seed.
struct NamedIfPanicking(u64);

impl Drop for NamedIfPanicking {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {0} panicked\n  to replay it: {REPLAY}={0} cargo test …", self.0);
        }
    }
}
