//! Concurrent iteration with a limit.
//!
//! A crew of fibers (the calling fiber is the first) takes items one by one, in their order. As
//! many fibers are hired at once as the iterator has items for certain. If it does not know, a
//! fiber that has taken an item hires two more before it works on it. So the crew grows with the
//! items, and is complete after a logarithmic number of scheduler turns.

use super::{Combination, End, INTERRUPTIBLE, is_interrupted, unwind};
use crate::fiber::protect;
use crate::fiber::scope::{Scope, scope};
use crate::fiber::spawn::current_or_panic;
use crate::sync::fair_lock::FairLock;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::iter::Fuse;

/// Calls `f` for each item, for at most `limit` items at once, and returns the results in the order
/// of the items. Items begin in their order, and the iterator is advanced only when a fiber is
/// free.
/// May suspend the calling fiber.
///
/// The calling fiber is one of the crew; the others are fibers of the same worker. So this is for
/// items that wait (for a disk, for a peer), not for arithmetic. To use all workers, call
/// [`par_map_workers`](super::par_map_workers); also in a program with interposed calls
/// (`cringle-interpose`), where fibers of the same family are one thread, so that their interposed
/// calls wait one after the other.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::{fiber, fs::File};
/// use std::os::unix::fs::FileExt;
///
/// cringle::run(|| {
///     let file = File::open("/proc/self/exe")?;
///     let first_byte = |offset| {
///         let mut byte = [0];
///         file.read_exact_at(&mut byte, offset).map(|()| byte[0])
///     };
///     // 32 reads are in flight at any time.
///     let bytes = fiber::par_map(0..1000, 32, first_byte);
///     assert_eq!(bytes.len(), 1000);
///     assert!(matches!(bytes[0], Ok(0x7f)));
///     Ok(())
/// })
/// # }
/// ```
///
/// # Panics
///
/// If `limit` is 0. With the first panic of `f` or of the iterator, which cancels the other calls,
/// after all have ended. Outside of `run`.
///
/// # Cancellation
///
/// The calls are cancelled with the caller, and no further item begins. If items are left then, or
/// a cancel unwound a call, the caller unwinds; [`try_par_map`] returns an error instead. Where
/// panics abort, all items are processed, and their operations fail.
#[track_caller]
pub fn par_map<I, F, R>(items: I, limit: usize, f: F) -> Vec<R>
where
    I: IntoIterator,
    F: Fn(I::Item) -> R,
{
    let results = Results::default();
    let work = |index, item| {
        results.put(index, f(item));
        Ok::<(), Infallible>(())
    };
    match each(items.into_iter(), limit, INTERRUPTIBLE, work) {
        End::Done => results.into_vec(),
        End::Interrupted => unwind(),
    }
}

/// Calls `f` for each item, for at most `limit` items at once. Like [`par_map`], but without
/// results.
/// May suspend the calling fiber.
///
/// ```
/// use cringle::{fiber, time};
/// use std::cell::Cell;
/// use std::time::Duration;
///
/// cringle::run(|| {
///     let sum = Cell::new(0);
///     fiber::par_for_each(1..=100, 10, |n| {
///         time::sleep(Duration::from_micros(n)).unwrap();
///         sum.set(sum.get() + n);
///     });
///     assert_eq!(sum.get(), 5050);
/// });
/// ```
///
/// # Panics
///
/// As [`par_map`].
///
/// # Cancellation
///
/// As [`par_map`].
#[track_caller]
pub fn par_for_each<I, F>(items: I, limit: usize, f: F)
where
    I: IntoIterator,
    F: Fn(I::Item),
{
    let work = |_, item| {
        f(item);
        Ok::<(), Infallible>(())
    };
    match each(items.into_iter(), limit, INTERRUPTIBLE, work) {
        End::Done => {}
        End::Interrupted => unwind(),
    }
}

/// Like [`par_map`], until a call fails: then no further item begins, the other calls are
/// cancelled, and after their end the error is returned.
/// May suspend the calling fiber.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::{fiber, fs::File};
/// use std::io;
///
/// cringle::run(|| {
///     let sizes = |paths: &[&str]| -> io::Result<Vec<u64>> {
///         fiber::try_par_map(paths, 8, |path| Ok(File::open(path)?.metadata()?.len()))
///     };
///     assert!(sizes(&["/proc/self/exe"])?[0] > 0);
///     let error = sizes(&["/proc/self/exe", "/no/such/file"]).unwrap_err();
///     assert_eq!(error.kind(), io::ErrorKind::NotFound);
///     Ok(())
/// })
/// # }
/// ```
///
/// # Errors
///
/// The first error in time; errors of calls that were cancelled because of it are dropped. If the
/// caller is cancelled while items are left, an [`io::Error`]: see
/// [`cancel::reason`](crate::cancel::reason).
///
/// Where a `?` follows the call, the compiler cannot infer the type of the errors (E0282, E0283):
/// end the closure with `io::Result::Ok(value)`.
///
/// # Panics
///
/// As [`par_map`].
///
/// # Cancellation
///
/// As [`par_map`], but with an error instead of the unwinding.
#[track_caller]
pub fn try_par_map<I, F, R, E>(items: I, limit: usize, f: F) -> Result<Vec<R>, E>
where
    I: IntoIterator,
    F: Fn(I::Item) -> Result<R, E>,
    E: From<io::Error>,
{
    let results = Results::default();
    try_each(items.into_iter(), limit, |index, item| f(item).map(|value| results.put(index, value)))
        .map(|()| results.into_vec())
}

/// Like [`par_for_each`], until a call fails: see [`try_par_map`].
/// May suspend the calling fiber.
///
/// ```
/// use cringle::{fiber, fs::File};
/// use std::io;
///
/// cringle::run(|| {
///     let paths = ["/proc/self/exe", "/proc/self/maps"];
///     fiber::try_par_for_each(paths, 8, |path| File::open(path).map(drop))
/// })
/// .unwrap();
/// ```
///
/// # Errors
///
/// As for [`try_par_map`].
///
/// # Panics
///
/// As [`par_map`].
///
/// # Cancellation
///
/// As [`try_par_map`].
#[track_caller]
pub fn try_par_for_each<I, F, E>(items: I, limit: usize, f: F) -> Result<(), E>
where
    I: IntoIterator,
    F: Fn(I::Item) -> Result<(), E>,
    E: From<io::Error>,
{
    try_each(items.into_iter(), limit, |_, item| f(item))
}

#[track_caller]
fn try_each<I, W, E>(items: I, limit: usize, work: W) -> Result<(), E>
where
    I: Iterator,
    W: Fn(usize, I::Item) -> Result<(), E>,
    E: From<io::Error>,
{
    let first_error = Cell::new(None);
    let end = each(items, limit, true, |index, item| {
        work(index, item).map_err(|error| {
            let first = first_error.take();
            first_error.set(first.or(Some(error)));
        })
    });
    end.into_result(first_error.take())
}

/// Calls `work` for each item and its index, on at most `limit` fibers, until a call fails or, if
/// `interruptible`, a cancel ends the iteration.
#[track_caller]
fn each<I, W, E>(items: I, limit: usize, interruptible: bool, work: W) -> End
where
    I: Iterator,
    W: Fn(usize, I::Item) -> Result<(), E>,
{
    assert!(limit > 0, "a limit of 0 allows no work: it must be 1 or more");
    current_or_panic();
    let certain = items.size_hint().0;
    let crew = Crew {
        combination: Combination::new(),
        advance_lock: FairLock::default(),
        items: RefCell::new(items.fuse().enumerate()),
        work,
        interruptible,
        limit: Cell::new(limit),
        hired: Cell::new(1),
    };
    scope(|s| {
        crew.hire(s, certain.saturating_sub(1));
        crew.work_through(s);
    });
    crew.combination.resume_panic();
    End::of(&crew.combination)
}

/// The fibers of one iteration: see the module.
struct Crew<I, W> {
    combination: Combination,
    /// Held while the iterator is advanced, which may wait.
    advance_lock: FairLock,
    items: RefCell<std::iter::Enumerate<Fuse<I>>>,
    work: W,
    interruptible: bool,
    limit: Cell<usize>,
    hired: Cell<usize>,
}

impl<I, W, E> Crew<I, W>
where
    I: Iterator,
    W: Fn(usize, I::Item) -> Result<(), E>,
{
    /// Takes items and works on them: the body of each fiber of the crew.
    fn work_through<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let done = self.combination.run(scope, || {
            while let Some((index, item)) = self.next_item() {
                self.hire(scope, 2);
                if (self.work)(index, item).is_err() {
                    return self.combination.decide(scope);
                }
            }
        });
        if done.is_none() {
            // Without the result of each item there is no result at all.
            self.combination.decide(scope);
        }
    }

    /// Returns the next item and its index, unless the outcome is decided or a cancel interrupts.
    fn next_item(&self) -> Option<(usize, I::Item)> {
        let lock = &self.advance_lock;
        let held = if self.interruptible { lock.lock() } else { protect(|| lock.lock()) };
        if self.combination.is_decided() {
            return None;
        }
        if held.is_err() {
            self.combination.interrupt();
            return None;
        }
        let next = self.items.borrow_mut().next()?;
        if self.combination.is_decided() {
            return None;
        }
        // Checked last: if no item is left, the cancel came too late.
        if self.interruptible && is_interrupted() {
            self.combination.interrupt();
            return None;
        }
        Some(next)
    }

    /// Adds up to `count` fibers to the crew, within the limit.
    fn hire<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, count: usize) {
        for _ in 0..count.min(self.limit.get().saturating_sub(self.hired.get())) {
            let hired =
                self.combination.builder().spawn_scoped_local(scope, || self.work_through(scope));
            if hired.is_err() {
                // No stack can be mapped: the fibers of the crew do the work.
                return self.limit.set(0);
            }
            self.hired.set(self.hired.get() + 1);
        }
    }
}

/// Results in the order of their indices.
struct Results<R>(RefCell<Vec<Option<R>>>);

impl<R> Default for Results<R> {
    fn default() -> Results<R> {
        Results(RefCell::default())
    }
}

impl<R> Results<R> {
    fn put(&self, index: usize, result: R) {
        let mut results = self.0.borrow_mut();
        if results.len() <= index {
            results.resize_with(index + 1, || None);
        }
        results[index] = Some(result);
    }

    fn into_vec(self) -> Vec<R> {
        let results = self.0.into_inner().into_iter();
        results.map(|result| result.expect("each item has a result")).collect()
    }
}
