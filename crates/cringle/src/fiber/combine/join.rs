//! All of them.

use super::{Course, unwind};
use crate::fiber::scope::scope;
use crate::fiber::spawn::current_or_panic;
use std::cell::Cell;

/// Calls both closures beside each other, and returns what both returned.
/// May suspend the calling fiber.
///
/// `a` runs on the calling fiber and begins at once; `b` is a fiber of the same worker, and begins when
/// `a` first waits.
///
/// ```
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
///     Ok::<(), std::io::Error>(())
/// })
/// .unwrap();
/// ```
///
/// # Panics
///
/// With the first panic of the two, when both have ended: it cancels the other one. Outside of
/// [`run`](crate::run).
///
/// # Cancellation
///
/// Both are cancelled with the caller, and what they return then is returned. If one of them is
/// unwound by it, so is the caller, when both have ended.
#[track_caller]
pub fn join<F, G, A, B>(a: F, b: G) -> (A, B)
where
    F: FnOnce() -> A,
    G: FnOnce() -> B,
{
    current_or_panic();
    let course = &Course::new();
    let second = &Cell::new(None);
    let first = scope(|s| {
        course.spawn(s, move || second.set(run(course, s, b)));
        run(course, s, a)
    });
    course.raise_panic();
    match (first, second.take()) {
        (Some(a), Some(b)) => (a, b),
        _ => unwind(),
    }
}

/// Calls all closures beside each other, each as a fiber of this worker, and returns what they returned,
/// in their own order. They begin in that order, too. For many, [`par_map`](super::par_map) bounds how
/// many fibers there are.
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
/// With the first panic of one of them, when all have ended: it cancels the others. Outside of
/// [`run`](crate::run), and where no stack can be mapped.
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
    let places: Vec<Cell<Option<T>>> = closures.iter().map(|_| Cell::new(None)).collect();
    let course = &Course::new();
    scope(|s| {
        // A spawn that fails is a panic like any other: it ends those that run.
        course.run(s, || {
            for (closure, place) in closures.into_iter().zip(&places) {
                course.spawn(s, move || place.set(run(course, s, closure)));
            }
        });
    });
    course.raise_panic();
    let results: Option<Vec<T>> = places.into_iter().map(Cell::into_inner).collect();
    results.unwrap_or_else(|| unwind())
}

/// Without the result of each there is none of all: the others need not go on.
fn run<T>(
    course: &Course,
    scope: &crate::fiber::Scope<'_, '_>,
    f: impl FnOnce() -> T,
) -> Option<T> {
    let result = course.run(scope, f);
    if result.is_none() {
        course.decide(scope);
    }
    result
}
