//! Combinators that need the results of all closures.

use super::{Combination, unwind};
use crate::fiber::scope::scope;
use crate::fiber::spawn::current_or_panic;
use std::cell::Cell;

/// Calls both closures concurrently, and returns both results.
/// May suspend the calling fiber.
///
/// `a` runs on the calling fiber and begins at once. `b` is a fiber of the same worker, and begins
/// when `a` first waits.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::{fiber, fs::File};
/// use std::os::unix::fs::FileExt;
///
/// cringle::run(|| {
///     let file = File::open("/proc/self/exe")?;
///     let (mut head, mut next) = ([0; 4], [0; 4]);
///     let (first, second) = fiber::join(
///         || file.read_exact_at(&mut head, 0),
///         || file.read_exact_at(&mut next, 4),
///     );
///     first.and(second)?;
///     assert_eq!(&head, b"\x7fELF");
///     Ok(())
/// })
/// # }
/// ```
///
/// # Panics
///
/// With the first panic of the two, which cancels the other closure, after both have ended. Outside
/// of `run`.
///
/// # Cancellation
///
/// Both closures are cancelled with the caller, and their results are returned. If a cancel unwinds
/// one of them, the caller unwinds too, after both have ended.
#[track_caller]
pub fn join<F, G, A, B>(a: F, b: G) -> (A, B)
where
    F: FnOnce() -> A,
    G: FnOnce() -> B,
{
    current_or_panic();
    let combination = &Combination::new();
    let second = &Cell::new(None);
    let first = scope(|s| {
        combination.spawn(s, move || second.set(run(combination, s, b)));
        run(combination, s, a)
    });
    combination.resume_panic();
    match (first, second.take()) {
        (Some(a), Some(b)) => (a, b),
        _ => unwind(),
    }
}

/// Calls all closures concurrently, each on a fiber of this worker, and returns their results in
/// the order of the closures. They begin in that order, too. For many closures,
/// [`par_map`](super::par_map) bounds the number of fibers.
/// May suspend the calling fiber.
///
/// ```
/// use cringle::{fiber, time};
/// use std::time::Duration;
///
/// cringle::run(|| {
///     let late = [3, 1, 2].map(|n| move || time::sleep(Duration::from_millis(n)).map(|()| n));
///     let numbers: Vec<_> = fiber::join_all(late).into_iter().map(Result::unwrap).collect();
///     assert_eq!(numbers, [3, 1, 2]);
/// });
/// ```
///
/// # Panics
///
/// With the first panic of a closure, which cancels the others, after all have ended. Outside of
/// `run`, and if no stack can be mapped.
///
/// # Cancellation
///
/// As [`join`].
#[track_caller]
pub fn join_all<I, F, T>(closures: I) -> Vec<T>
where
    I: IntoIterator<Item = F>,
    F: FnOnce() -> T,
{
    current_or_panic();
    let closures: Vec<F> = closures.into_iter().collect();
    let slots: Vec<Cell<Option<T>>> = closures.iter().map(|_| Cell::new(None)).collect();
    let combination = &Combination::new();
    scope(|s| {
        // A spawn that fails panics, and so cancels the closures that run.
        combination.run(s, || {
            for (closure, slot) in closures.into_iter().zip(&slots) {
                combination.spawn(s, move || slot.set(run(combination, s, closure)));
            }
        });
    });
    combination.resume_panic();
    let results: Option<Vec<T>> = slots.into_iter().map(Cell::into_inner).collect();
    results.unwrap_or_else(|| unwind())
}

/// Calls one of the closures. If it has no result, the combinator has none: the others are
/// cancelled.
fn run<T>(
    combination: &Combination,
    scope: &crate::fiber::Scope<'_, '_>,
    f: impl FnOnce() -> T,
) -> Option<T> {
    let result = combination.run(scope, f);
    if result.is_none() {
        combination.decide(scope);
    }
    result
}
