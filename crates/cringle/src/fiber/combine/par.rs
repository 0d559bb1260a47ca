//! Many of them, so many at once.
//!
//! A crew of workers (the calling fiber is the first) takes items one by one, in their own order. As
//! many are hired at once as there are items for certain. Where the iterator does not know, a worker
//! that has taken an item hires two before it works on it: so the crew grows with the items, and is
//! complete after a few turns of the scheduler, not after as many as it has workers.

use super::{Course, unwind};
use crate::fiber::protect;
use crate::fiber::scope::{Scope, scope};
use crate::fiber::spawn::current_or_panic;
use crate::runtime::worker::Worker;
use crate::sync::fair_lock::FairLock;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::iter::Fuse;

/// Calls `f` for each item, for at most `limit` at once, and returns what it returned, in the order of
/// the items. Items begin in their own order, and an item is asked for only when somebody is free.
/// May suspend the calling fiber.
///
/// The calling fiber is one of those that work, the others are fibers of the same worker: for items
/// that wait (for a disk, for a peer), not for arithmetic.
///
/// ```
/// use cringle::{fiber, fs::File};
/// use std::os::unix::fs::FileExt;
///
/// cringle::run(|| {
///     let file = File::open("/proc/self/exe")?;
///     let first_byte = |offset| {
///         let mut byte = [0];
///         file.read_exact_at(&mut byte, offset).map(|()| byte[0])
///     };
///     // 32 reads are under way at any time.
///     let bytes = fiber::par_map(0..1000, 32, first_byte);
///     assert_eq!(bytes.len(), 1000);
///     assert!(matches!(bytes[0], Ok(0x7f)));
///     Ok::<(), std::io::Error>(())
/// })
/// .unwrap();
/// ```
///
/// # Panics
///
/// For a `limit` of 0. With the first panic of `f` or of the iterator, when all have ended: it cancels
/// the others. Outside of [`run`](crate::run).
///
/// # Cancellation
///
/// What runs is cancelled with the caller, and no further item is begun. If items are left then, or a
/// call was unwound, the caller unwinds; [`try_par_map`] returns an error instead. Where panics abort, all items
/// are worked on, and their operations fail.
#[track_caller]
pub fn par_map<I, F, R>(items: I, limit: usize, f: F) -> Vec<R>
where
    I: IntoIterator,
    F: Fn(I::Item) -> R,
{
    let results = Results::default();
    let work = |place, item| {
        results.put(place, f(item));
        Ok::<(), Infallible>(())
    };
    match each(items.into_iter(), limit, INTERRUPTIBLE, work) {
        End::Done => results.into_vec(),
        End::CutShort => unwind(),
    }
}

/// Calls `f` for each item, for at most `limit` at once. As [`par_map`], without results to keep.
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
        End::CutShort => unwind(),
    }
}

/// Like [`par_map`], until a call fails: no further item is begun then, the other calls are cancelled
/// and waited for, and the error is returned.
/// May suspend the calling fiber.
///
/// ```
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
///     Ok::<(), io::Error>(())
/// })
/// .unwrap();
/// ```
///
/// # Errors
///
/// The first error in time; those of calls that were then cancelled are dropped. If the caller is
/// cancelled with items left, that, as an [`io::Error`]: see [`cancel::reason`](crate::cancel::reason).
///
/// # Panics
///
/// As [`par_map`].
///
/// # Cancellation
///
/// As [`par_map`], with an error in place of the unwinding.
#[track_caller]
pub fn try_par_map<I, F, R, E>(items: I, limit: usize, f: F) -> Result<Vec<R>, E>
where
    I: IntoIterator,
    F: Fn(I::Item) -> Result<R, E>,
    E: From<io::Error>,
{
    let results = Results::default();
    try_each(items.into_iter(), limit, |place, item| f(item).map(|value| results.put(place, value)))
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
    let end = each(items, limit, true, |place, item| {
        work(place, item).map_err(|error| {
            let first = first_error.take();
            first_error.set(first.or(Some(error)));
        })
    });
    match (first_error.take(), end) {
        (Some(error), _) => Err(error),
        (None, End::Done) => Ok(()),
        (None, End::CutShort) => match Worker::current() {
            Some((worker, fiber)) if worker.is_interrupted(fiber) => {
                Err(E::from(fiber.cancel_error()))
            }
            _ => unwind(),
        },
    }
}

/// How a crew ended, if not by a panic.
enum End {
    /// All items were worked on, or one failed.
    Done,
    /// A cancel came first.
    CutShort,
}

/// Where panics abort, what has no room for an error works through all its items.
const INTERRUPTIBLE: bool = cfg!(panic = "unwind");

/// Has `work` done for each item, with its place, by at most `limit` fibers; until it fails, or is cancelled if it
/// is interruptible.
#[track_caller]
fn each<I, W, E>(items: I, limit: usize, interruptible: bool, work: W) -> End
where
    I: Iterator,
    W: Fn(usize, I::Item) -> Result<(), E>,
{
    assert!(limit > 0, "a limit of 0 at once is no work at all: it must be 1 or more");
    current_or_panic();
    let certain = items.size_hint().0;
    let crew = Crew {
        course: Course::new(),
        turn: FairLock::default(),
        items: RefCell::new(items.fuse().enumerate()),
        work,
        interruptible,
        limit: Cell::new(limit),
        hired: Cell::new(1),
    };
    scope(|s| {
        crew.hire(s, certain.saturating_sub(1));
        crew.take_part(s);
    });
    crew.course.raise_panic();
    match crew.course.cut_short.get() {
        true => End::CutShort,
        false => End::Done,
    }
}

/// See the module.
struct Crew<I, W> {
    course: Course,
    /// Whose turn it is to ask for an item: the iterator may wait.
    turn: FairLock,
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
    /// What each worker does.
    fn take_part<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let done = self.course.run(scope, || {
            while let Some((place, item)) = self.next_item() {
                self.hire(scope, 2);
                if (self.work)(place, item).is_err() {
                    return self.course.decide(scope);
                }
            }
        });
        if done.is_none() {
            // Without the result of each there is none of all.
            self.course.decide(scope);
        }
    }

    /// The next item, while there is one and work goes on.
    fn next_item(&self) -> Option<(usize, I::Item)> {
        let turn = match self.interruptible {
            true => self.turn.lock(),
            false => protect(|| self.turn.lock()),
        };
        if self.course.is_decided() {
            return None;
        }
        if turn.is_err() {
            self.course.cut_short.set(true);
            return None;
        }
        let next = self.items.borrow_mut().next()?;
        if self.course.is_decided() {
            return None;
        }
        // Looked at last: if nothing is left, the cancel came too late.
        let interrupted =
            || Worker::current().is_some_and(|(worker, fiber)| worker.is_interrupted(fiber));
        if self.interruptible && interrupted() {
            self.course.cut_short.set(true);
            return None;
        }
        Some(next)
    }

    /// Has so many more fibers take part, or as many as may be.
    fn hire<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, count: usize) {
        for _ in 0..count.min(self.limit.get().saturating_sub(self.hired.get())) {
            let hired = self.course.builder().spawn_scoped_local(scope, || self.take_part(scope));
            if hired.is_err() {
                // No stack is to be had: those who are there do it.
                return self.limit.set(0);
            }
            self.hired.set(self.hired.get() + 1);
        }
    }
}

/// Results in the order of their places.
struct Results<R>(RefCell<Vec<Option<R>>>);

impl<R> Default for Results<R> {
    fn default() -> Results<R> {
        Results(RefCell::default())
    }
}

impl<R> Results<R> {
    fn put(&self, place: usize, result: R) {
        let mut results = self.0.borrow_mut();
        if results.len() <= place {
            results.resize_with(place + 1, || None);
        }
        results[place] = Some(result);
    }

    fn into_vec(self) -> Vec<R> {
        let results = self.0.into_inner().into_iter();
        results.map(|result| result.expect("each item was worked on")).collect()
    }
}
