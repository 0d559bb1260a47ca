//! The first of them.

use super::{Course, unwind};
use crate::fiber::scope::{Scope, scope};
use crate::fiber::spawn::current_or_panic;
use std::cell::{Cell, RefCell};
use std::io;

/// Calls both closures beside each other; the first that returns decides, by success or failure. The
/// other one is cancelled and waited for, and what it still returns is dropped: where that may be
/// worth something (a connection, bytes that were read), see [`race_with`].
/// May suspend the calling fiber.
///
/// `a` runs on the calling fiber and begins at once; `b` is a fiber of the same worker, and begins when
/// `a` first waits. If `a` never waits, `b` is dropped unrun.
///
/// ```
/// use cringle::{fiber, time};
/// use std::io;
/// use std::time::Duration;
///
/// cringle::run(|| {
///     let slow = || time::sleep(Duration::from_secs(3600)).map(|()| "slow");
///     let fast = || time::sleep(Duration::from_millis(1)).map(|()| "fast");
///     assert_eq!(fiber::race(slow, fast)?, "fast");
///     Ok::<(), io::Error>(())
/// })
/// .unwrap();
/// ```
///
/// # Errors
///
/// That of the first to return, if it failed. (Where a failure should not decide, see [`any`].)
///
/// # Panics
///
/// With the first panic of either, the loser's too, when both have ended. Outside of
/// [`run`](crate::run).
///
/// # Cancellation
///
/// As a loser is cancelled: its operations fail, and a wait without room for an error unwinds it, up to
/// here. Both are cancelled with the caller. One that is unwound has not returned, and decides
/// nothing; if both are, so is the caller.
#[track_caller]
pub fn race<F, G, T, E>(a: F, b: G) -> Result<T, E>
where
    F: FnOnce() -> Result<T, E>,
    G: FnOnce() -> Result<T, E>,
{
    race_with(a, b, |first, _| first)
}

/// Like [`race`], and loses no value if both succeed: a cancel asks the loser to end, and what it had
/// done already wins over the cancel. `combine` is then given both values, the winner's first.
/// May suspend the calling fiber.
///
/// (The closures return `Result`s so that a loser that was cancelled, which returns an error, can be
/// told from one that has something to give.)
///
/// ```
/// use cringle::fiber;
/// use std::cell::RefCell;
/// use std::io;
///
/// cringle::run(|| {
///     // Two sources; what was taken from either is kept.
///     let (left, right) = (RefCell::new(vec![1]), RefCell::new(vec![2]));
///     let take = |source: &RefCell<Vec<i32>>| {
///         fiber::yield_now_cancellable()?;
///         Ok::<_, io::Error>(source.take())
///     };
///     let both = |mut first: Vec<i32>, second| {
///         first.extend::<Vec<i32>>(second);
///         first
///     };
///     let taken = fiber::race_with(|| take(&left), || take(&right), both)?;
///     assert_eq!(taken.len() + left.take().len() + right.take().len(), 2);
///     Ok::<(), io::Error>(())
/// })
/// .unwrap();
/// ```
///
/// # Errors
///
/// As for [`race`]. An error of the loser is dropped, and so is its value if the winner failed.
///
/// # Panics
///
/// As [`race`]; and with `combine`'s.
///
/// # Cancellation
///
/// As [`race`]. `combine` is called when both have ended.
#[track_caller]
pub fn race_with<F, G, C, T, E>(a: F, b: G, combine: C) -> Result<T, E>
where
    F: FnOnce() -> Result<T, E>,
    G: FnOnce() -> Result<T, E>,
    C: FnOnce(T, T) -> T,
{
    current_or_panic();
    let course = &Course::new();
    let results = &RefCell::new(Vec::with_capacity(2));
    scope(|s| {
        course.spawn(s, move || run(course, s, results, b));
        run(course, s, results, a);
    });
    course.raise_panic();
    let mut results = results.take().into_iter();
    match (results.next(), results.next()) {
        (Some(Ok(first)), Some(Ok(second))) => Ok(combine(first, second)),
        (Some(first), _) => first,
        (None, _) => unwind(),
    }
}

/// One side of a race: leaves its result behind those that came before, and decides.
fn run<T>(
    course: &Course,
    scope: &Scope<'_, '_>,
    results: &RefCell<Vec<T>>,
    f: impl FnOnce() -> T,
) {
    if let Some(result) = course.run(scope, f) {
        results.borrow_mut().push(result);
        course.decide(scope);
    }
}

/// Calls all closures beside each other, each as a fiber of this worker, and returns the first success.
/// The others are then cancelled and waited for; what they still return is dropped. They begin in
/// their own order.
/// May suspend the calling fiber.
///
/// ```
/// use cringle::{fiber, fs::File};
/// use std::io;
///
/// cringle::run(|| {
///     let places = ["/no/such/place", "/proc/self/exe"];
///     let file = fiber::any(places.map(|path| move || File::open(path)))?;
///     assert!(file.metadata()?.is_file());
///     Ok::<(), io::Error>(())
/// })
/// .unwrap();
/// ```
///
/// # Errors
///
/// If all of them fail, the error that came last, as `TcpStream::connect` reports that of the last
/// address; `InvalidInput` if there are none.
///
/// # Panics
///
/// With the first panic of one of them, when all have ended: it cancels the others. Outside of
/// [`run`](crate::run), and where no stack can be mapped.
///
/// # Cancellation
///
/// All are cancelled with the caller. One that is unwound by it has neither succeeded nor failed; if
/// all are, so is the caller.
#[track_caller]
pub fn any<I, F, T, E>(closures: I) -> Result<T, E>
where
    I: IntoIterator<Item = F>,
    F: FnOnce() -> Result<T, E>,
    E: From<io::Error>,
{
    current_or_panic();
    let course = &Course::new();
    let (success, last_error) = (&Cell::new(None), &Cell::new(None));
    let attempt = |s: &Scope<'_, '_>, closure: F| match course.run(s, closure) {
        Some(Ok(value)) if !course.is_decided() => {
            success.set(Some(value));
            course.decide(s);
        }
        Some(Err(error)) => last_error.set(Some(error)),
        Some(Ok(_)) | None => {}
    };
    let attempt = &attempt;
    scope(|s| {
        // A spawn that fails is a panic like any other: it ends those that run.
        course.run(s, || {
            for closure in closures {
                course.spawn(s, move || attempt(s, closure));
            }
        });
    });
    course.raise_panic();
    match (success.take(), last_error.take()) {
        (Some(value), _) => Ok(value),
        (None, Some(error)) => Err(error),
        (None, None) if course.cut_short.get() => unwind(),
        (None, None) => {
            let text = "`fiber::any` was given no closure: nothing can succeed";
            Err(E::from(io::Error::new(io::ErrorKind::InvalidInput, text)))
        }
    }
}
