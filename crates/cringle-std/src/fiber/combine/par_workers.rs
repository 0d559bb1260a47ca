//! [`par_map`](super::par_map) and its relatives, on all workers: see [`spread`](super::spread).

use super::spread::{Failed, each};
use super::{End, INTERRUPTIBLE, keep_first, unwind};
use cringle_sys::lock::Mutex;
use std::io;

/// Calls `f` for each item on all workers, for at most `limit` items at once, and returns the
/// results in the order of the items: [`par_map`](super::par_map), for calls that compute as well
/// as wait.
/// May suspend the calling fiber.
///
/// The calls run on fibers of all workers, which are spawned as by
/// [`Scope::spawn`](super::super::Scope::spawn) and take one item after the other, in the order of
/// the items. A worker that is faster takes more of them. As long as the calls do not wait, each
/// worker runs few fibers, and `limit` is not reached. The calling fiber advances the iterator,
/// which need not be `Send`, while fewer than eight times `limit` items, and fewer than 1,024, wait
/// to begin.
///
/// ```
/// use cringle::{fiber, fs};
///
/// cringle::Builder::new().workers(2).run(|| {
///     let names = ["comm", "stat", "status", "limits"];
///     let sum = |name| {
///         let bytes = fs::read(format!("/proc/self/{name}"))?;
///         std::io::Result::Ok(bytes.into_iter().map(u64::from).sum::<u64>())
///     };
///     let sums = fiber::par_map_workers(names, 64, sum);
///     assert!(sums.into_iter().all(|sum| sum.unwrap() > 0));
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Panics
///
/// As [`par_map`](super::par_map): if `limit` is 0; with the first panic of `f` or of the iterator,
/// which cancels the other calls, after all have ended; and outside of `run`.
///
/// # Cancellation
///
/// As [`par_map`](super::par_map): the calls are cancelled with the caller, and no further item
/// begins. If items are left then, or a cancel unwound a call, the caller unwinds;
/// [`try_par_map_workers`] returns an error instead. Where panics abort, all items are processed.
#[track_caller]
pub fn par_map_workers<I, F, R>(items: I, limit: usize, f: F) -> Vec<R>
where
    I: IntoIterator,
    I::Item: Send,
    F: Fn(I::Item) -> R + Sync,
    R: Send,
{
    let work = |results: &mut Vec<_>, index, item| {
        results.push((index, f(item)));
        Ok(())
    };
    match each(items.into_iter(), limit, INTERRUPTIBLE, work) {
        (End::Done, results) => in_order(results),
        (End::Interrupted, _) => unwind(),
    }
}

/// Calls `f` for each item on all workers, for at most `limit` items at once. Like
/// [`par_map_workers`], but without results.
/// May suspend the calling fiber.
///
/// ```
/// use cringle::fiber;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// cringle::run(|| {
///     let sum = AtomicU64::new(0);
///     fiber::par_for_each_workers(1..=100, 8, |n| {
///         sum.fetch_add(n, Ordering::Relaxed);
///     });
///     assert_eq!(sum.into_inner(), 5050);
/// });
/// ```
///
/// # Panics
///
/// As [`par_map_workers`].
///
/// # Cancellation
///
/// As [`par_map_workers`].
#[track_caller]
pub fn par_for_each_workers<I, F>(items: I, limit: usize, f: F)
where
    I: IntoIterator,
    I::Item: Send,
    F: Fn(I::Item) + Sync,
{
    let work = |(): &mut (), _, item| {
        f(item);
        Ok(())
    };
    match each(items.into_iter(), limit, INTERRUPTIBLE, work) {
        (End::Done, _) => {}
        (End::Interrupted, _) => unwind(),
    }
}

/// Like [`par_map_workers`], until a call fails: then no further item begins, the other calls are
/// cancelled, and after their end the error is returned.
/// May suspend the calling fiber.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::{fiber, fs};
/// use std::io;
///
/// cringle::run(|| {
///     let lengths = |paths: &[&str]| -> io::Result<Vec<usize>> {
///         fiber::try_par_map_workers(paths, 8, |path| Ok(fs::read(path)?.len()))
///     };
///     assert!(lengths(&["/proc/self/stat"])?[0] > 0);
///     let error = lengths(&["/proc/self/stat", "/no/such/file"]).unwrap_err();
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
/// # Panics
///
/// As [`par_map_workers`].
///
/// # Cancellation
///
/// As [`par_map_workers`], but with an error instead of the unwinding.
#[track_caller]
pub fn try_par_map_workers<I, F, R, E>(items: I, limit: usize, f: F) -> Result<Vec<R>, E>
where
    I: IntoIterator,
    I::Item: Send,
    F: Fn(I::Item) -> Result<R, E> + Sync,
    R: Send,
    E: From<io::Error> + Send,
{
    let work = |results: &mut Vec<_>, index, item| {
        results.push((index, f(item)?));
        Ok(())
    };
    try_each(items.into_iter(), limit, work).map(in_order)
}

/// Like [`par_for_each_workers`], until a call fails: see [`try_par_map_workers`].
/// May suspend the calling fiber.
///
/// ```
/// use cringle::{fiber, fs::File};
/// use std::io;
///
/// cringle::run(|| {
///     let paths = ["/proc/self/exe", "/proc/self/maps"];
///     fiber::try_par_for_each_workers(paths, 8, |path| File::open(path).map(drop))
/// })
/// .unwrap();
/// ```
///
/// # Errors
///
/// As for [`try_par_map_workers`].
///
/// # Panics
///
/// As [`par_map_workers`].
///
/// # Cancellation
///
/// As [`try_par_map_workers`].
#[track_caller]
pub fn try_par_for_each_workers<I, F, E>(items: I, limit: usize, f: F) -> Result<(), E>
where
    I: IntoIterator,
    I::Item: Send,
    F: Fn(I::Item) -> Result<(), E> + Sync,
    E: From<io::Error> + Send,
{
    try_each(items.into_iter(), limit, |(): &mut (), _, item| f(item)).map(drop)
}

#[track_caller]
fn try_each<I, D, W, E>(items: I, limit: usize, work: W) -> Result<Vec<D>, E>
where
    I: Iterator,
    I::Item: Send,
    D: Default + Send,
    W: Fn(&mut D, usize, I::Item) -> Result<(), E> + Sync,
    E: From<io::Error> + Send,
{
    let first_error = Mutex::new(None);
    let (end, done) = each(items, limit, true, |own, index, item| {
        work(own, index, item).map_err(|error| {
            drop(keep_first(&first_error, error));
            Failed
        })
    });
    let first_error = first_error.lock().take();
    end.into_result(first_error).map(|()| done)
}

/// Returns the results in the order of the items. Each fiber has left its own, with their indices.
fn in_order<R>(parts: Vec<Vec<(usize, R)>>) -> Vec<R> {
    let count = parts.iter().map(Vec::len).sum();
    let mut results: Vec<Option<R>> = std::iter::repeat_with(|| None).take(count).collect();
    for (index, result) in parts.into_iter().flatten() {
        results[index] = Some(result);
    }
    results.into_iter().map(|result| result.expect("each item has a result")).collect()
}
