//! Combinators that need the result of one closure.

use super::{Combination, unwind};
use crate::fiber::scope::{Scope, scope};
use crate::fiber::spawn::current_or_panic;
use std::cell::{Cell, RefCell};
use std::io;

/// For the first *success*, as among mirrors, see [`any`]. This function calls both closures
/// concurrently, and the first one that returns decides, whether it succeeds or fails. The other
/// one is cancelled, and the call waits for its end and drops its result. To keep that result (a
/// connection, bytes that were read), use [`race_with`].
/// May suspend the calling fiber.
///
/// `a` runs on the calling fiber and begins at once. `b` is a fiber of the same worker, and begins
/// when `a` first waits. If `a` never waits, `b` is dropped without a call.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::{fiber, time};
/// use std::time::Duration;
///
/// cringle::run(|| {
///     let slow = || time::sleep(Duration::from_secs(3600)).map(|()| "slow");
///     let fast = || time::sleep(Duration::from_millis(1)).map(|()| "fast");
///     assert_eq!(fiber::race(slow, fast)?, "fast");
///     Ok(())
/// })
/// # }
/// ```
///
/// Among mirrors, the first one that refuses would decide a race:
///
/// ```
/// use cringle::{fiber, time};
/// use std::{io, time::Duration};
///
/// cringle::run(|| {
///     let page = |mirror: &str| match mirror {
///         "dead" => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
///         _ => time::sleep(Duration::from_millis(1)).map(|()| "a page"),
///     };
///     assert!(fiber::race(|| page("dead"), || page("alive")).is_err());
///     let first = fiber::any(["dead", "alive"].map(|mirror| move || page(mirror)));
///     assert_eq!(first.unwrap(), "a page");
/// });
/// ```
///
/// # Errors
///
/// The error of the first closure that returns, if it failed. If a failure should not decide, use
/// [`any`].
///
/// # Panics
///
/// With the first panic of either closure, including the loser, after both have ended. Outside of
/// `run`.
///
/// # Cancellation
///
/// The operations of a loser fail, and a wait that cannot return an error unwinds it. Both closures
/// are cancelled with the caller. A closure that unwinds has not returned and decides nothing; if
/// both unwind, so does the caller.
#[track_caller]
pub fn race<F, G, T, E>(a: F, b: G) -> Result<T, E>
where
    F: FnOnce() -> Result<T, E>,
    G: FnOnce() -> Result<T, E>,
{
    race_with(a, b, |first, _| first)
}

/// Like [`race`], but loses no value if both closures succeed: a loser that has a result when the
/// cancel arrives still returns it. `combine` then gets both values, the winner's first.
/// May suspend the calling fiber.
///
/// The closures return `Result`s, so that a cancelled loser, which returns an error, can be
/// distinguished from a loser that has a value.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::fiber;
/// use std::cell::RefCell;
/// use std::io;
///
/// cringle::run(|| {
///     // Two sources; values taken from either one are kept.
///     let (left, right) = (RefCell::new(vec![1]), RefCell::new(vec![2]));
///     let take = |source: &RefCell<Vec<i32>>| {
///         fiber::yield_now_cancellable()?;
///         io::Result::Ok(source.take())
///     };
///     let both = |mut first: Vec<i32>, second| {
///         first.extend::<Vec<i32>>(second);
///         first
///     };
///     let taken = fiber::race_with(|| take(&left), || take(&right), both)?;
///     assert_eq!(taken.len() + left.take().len() + right.take().len(), 2);
///     Ok(())
/// })
/// # }
/// ```
///
/// # Errors
///
/// As for [`race`]. An error of the loser is dropped, and so is its value if the winner failed.
///
/// # Panics
///
/// As [`race`], and if `combine` panics.
///
/// # Cancellation
///
/// As [`race`]. `combine` is called after both closures have ended.
#[track_caller]
pub fn race_with<F, G, C, T, E>(a: F, b: G, combine: C) -> Result<T, E>
where
    F: FnOnce() -> Result<T, E>,
    G: FnOnce() -> Result<T, E>,
    C: FnOnce(T, T) -> T,
{
    current_or_panic();
    let combination = &Combination::new();
    let results = &RefCell::new(Vec::with_capacity(2));
    scope(|s| {
        combination.spawn(s, move || run(combination, s, results, b));
        run(combination, s, results, a);
    });
    combination.resume_panic();
    let mut results = results.take().into_iter();
    match (results.next(), results.next()) {
        (Some(Ok(first)), Some(Ok(second))) => Ok(combine(first, second)),
        (Some(first), _) => first,
        (None, _) => unwind(),
    }
}

/// Runs one side of a race: appends its result to the earlier ones, and decides the outcome.
fn run<T>(
    combination: &Combination,
    scope: &Scope<'_, '_>,
    results: &RefCell<Vec<T>>,
    f: impl FnOnce() -> T,
) {
    if let Some(result) = combination.run(scope, f) {
        results.borrow_mut().push(result);
        combination.decide(scope);
    }
}

/// Calls all closures concurrently, each on a fiber of this worker, and returns the first success.
/// The others are cancelled, and the call waits for their ends and drops their results. The
/// closures begin in their order.
/// May suspend the calling fiber.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::{fiber, fs::File};
///
/// cringle::run(|| {
///     let paths = ["/no/such/file", "/proc/self/exe"];
///     let file = fiber::any(paths.map(|path| move || File::open(path)))?;
///     assert!(file.metadata()?.is_file());
///     Ok(())
/// })
/// # }
/// ```
///
/// # Errors
///
/// If all closures fail, the last error in time, as `TcpStream::connect` returns the error of the
/// last address. `InvalidInput` if there is no closure.
///
/// # Panics
///
/// With the first panic of a closure, which cancels the others, after all have ended. Outside of
/// `run`, and if no stack can be mapped.
///
/// # Cancellation
///
/// All closures are cancelled with the caller. A closure that unwinds has neither succeeded nor
/// failed; if all unwind, so does the caller.
#[track_caller]
pub fn any<I, F, T, E>(closures: I) -> Result<T, E>
where
    I: IntoIterator<Item = F>,
    F: FnOnce() -> Result<T, E>,
    E: From<io::Error>,
{
    current_or_panic();
    let combination = &Combination::new();
    let (success, last_error) = (&Cell::new(None), &Cell::new(None));
    let attempt = |s: &Scope<'_, '_>, closure: F| match combination.run(s, closure) {
        Some(Ok(value)) if !combination.is_decided() => {
            success.set(Some(value));
            combination.decide(s);
        }
        Some(Err(error)) => last_error.set(Some(error)),
        Some(Ok(_)) | None => {}
    };
    let attempt = &attempt;
    scope(|s| {
        // A spawn that fails panics, and so cancels the closures that run.
        combination.run(s, || {
            for closure in closures {
                combination.spawn(s, move || attempt(s, closure));
            }
        });
    });
    combination.resume_panic();
    match (success.take(), last_error.take()) {
        (Some(value), _) => Ok(value),
        (None, Some(error)) => Err(error),
        (None, None) if combination.was_interrupted() => unwind(),
        (None, None) => {
            let text = "`fiber::any` was called without a closure: none can succeed";
            Err(E::from(io::Error::new(io::ErrorKind::InvalidInput, text)))
        }
    }
}
