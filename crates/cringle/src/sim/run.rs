//! One seed, and many.

use super::{Failure, Options, Stats, World};
use std::time::Duration;

/// What came of a simulated run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report<T> {
    /// What the closure returned.
    pub value: T,
    /// How long it took in virtual time.
    pub elapsed: Duration,
    /// What was done, and what went wrong.
    pub stats: Stats,
}

/// Runs `f` as [`cringle::run`](crate::run) does, in a new [`World`]. See the [module](super).
///
/// # Errors
///
/// What a checker found, or `f`'s panic.
///
/// # Panics
///
/// Within another run, simulated or not.
pub fn run<T>(seed: u64, options: &Options, f: impl FnOnce() -> T) -> Result<Report<T>, Failure> {
    let mut world = World::new(seed, options);
    let value = world.run(f)?;
    Ok(Report { value, elapsed: world.elapsed(), stats: world.stats() })
}

/// The environment variable that makes [`each`] run one seed alone.
const REPLAY: &str = "CRINGLE_SIM_SEED";

/// Calls `f` with each seed: a test over many simulations. `f` makes its own [`World`], or calls
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
/// At the first seed that fails, with how to run it alone:
/// `CRINGLE_SIM_SEED=17 cargo test NAME_OF_THE_TEST`.
pub fn each(seeds: impl IntoIterator<Item = u64>, mut f: impl FnMut(u64) -> Result<(), Failure>) {
    let replayed = std::env::var(REPLAY).ok().and_then(|text| text.parse().ok());
    let mut check = |seed| {
        if let Err(failure) = f(seed) {
            panic!("{failure}\n  to replay it: {REPLAY}={seed} cargo test …");
        }
    };
    match replayed {
        Some(seed) => check(seed),
        None => seeds.into_iter().for_each(check),
    }
}
