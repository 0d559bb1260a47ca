//! Syncs of a file, shared by the callers that wait for one at the same time.
//!
//! A sync takes as long for many writes as for one, and the syncs of one file exclude each other in
//! many file systems. So callers that ask for a sync while another sync is under way are covered by
//! the next one, which begins when the present one ends: see [`SharedRun`].
//!
//! The kernel reports a failed write-back once for each open file, and drops the pages that it
//! could not write. A later sync succeeds, though what was written before is lost. So a failure
//! lasts: after it, every sync through this handle and its clones fails. So does every write that
//! is durable when it returns, because on ext4 a write to the same pages may not reach the disk.
//! [`Reports`] covers calls whose report another call may have got.

use super::File;
use super::reports::Reports;
use super::sync_errors::{failed_before, failed_meanwhile};
use crate::fs::perform::retry;
use crate::sync::shared_run::{RunEnd, SharedRun};
use cringle_core::cancelled;
use cringle_core::worker::{Current, Worker};
use cringle_driver::{FileOp, Op, blocking};
use cringle_sys as sys;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// What a handle and its clones know of their syncs.
#[derive(Default)]
pub(super) struct Syncs {
    run: SharedRun,
    reports: Reports,
    /// The `errno` of a write-back that has failed, but for lack of space; 0 if none has.
    failed: AtomicI32,
}

/// The errors by which a sync says that there is nothing to sync. They do not last, and need not.
const REFUSALS: [i32; 6] =
    [libc::EINVAL, libc::EBADF, libc::EROFS, libc::ESPIPE, libc::EOPNOTSUPP, libc::ENOSYS];

/// The errors of a write or a copy that has written nothing: it would have waited, was interrupted,
/// exceeded the limit of the file's size, or its source or memory cannot be read.
const NOTHING_WRITTEN: [i32; 9] = [
    libc::EAGAIN,
    libc::EINTR,
    libc::EFBIG,
    libc::EFAULT,
    libc::EXDEV,
    libc::EISDIR,
    libc::EPERM,
    libc::ETXTBSY,
    libc::EOVERFLOW,
];

/// The promise of a call that waits for a write-back. A success keeps it only if no other call has
/// taken the kernel's report.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::fs) enum Promises {
    /// A success says that bytes are durable.
    Durable,
    Nothing,
}

impl File {
    /// Waits until the file's data and metadata are on the disk (`fsync`).
    ///
    /// Fibers and threads that sync the same file at the same time, through one handle or clones of
    /// it, share the work: callers that ask while a sync is under way are covered by the next sync.
    /// Each call returns only after a sync that has begun after the call. Handles of a file that
    /// was opened twice share nothing, because the kernel keeps their errors apart. Code that runs
    /// beside a fiber, as a panic hook does, shares nothing either.
    ///
    /// # Errors
    ///
    /// As std's, and [`Cancelled`](cringle_core::cancelled::Cancelled), after which it is unknown
    /// whether the data is on the disk. Neither a cancel nor a deadline affects other callers that
    /// wait for the same sync.
    ///
    /// After a failure, what was written before may be lost, though the kernel reports it only
    /// once. So each later sync through this handle and its clones fails, too, with the first
    /// error as the [source](std::error::Error::source) of its own. Open the file again, drop its
    /// pages from the cache ([`Advice::DontNeed`](crate::fs::Advice)), and write again what no
    /// successful sync has covered: reads may return such bytes from memory although they are not
    /// on the disk, and on ext4 a write to such a page may not reach the disk either.
    pub fn sync_all(&self) -> io::Result<()> {
        self.sync(true)
    }

    /// Waits until the file's data is on the disk, and the metadata needed to read it back
    /// (`fdatasync`). It is shared as [`sync_all`](File::sync_all) is.
    ///
    /// ```
    /// use cringle::fs::File;
    /// use cringle::fiber;
    /// use std::os::unix::fs::FileExt;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// let log = File::create(&path)?;
    /// cringle::run(|| {
    ///     // A few syncs for all of them.
    ///     fiber::try_par_for_each(0..100, 100, |n| {
    ///         log.write_all_at(b"commit\n", n * 7)?;
    ///         log.sync_data()
    ///     })
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`sync_all`](File::sync_all).
    pub fn sync_data(&self) -> io::Result<()> {
        self.sync(false)
    }

    /// Makes a call to which the kernel may report a failed write-back, which it would not report
    /// again. So a failure fails all later syncs, and each call that was made meanwhile.
    pub(in crate::fs) fn report_by<T>(
        &self,
        promises: Promises,
        call: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let Syncs { run, reports, failed } = &**self.syncs();
        let note = |error: &io::Error| {
            if let Some(errno) = lasting(error) {
                if !lacks_space(errno) {
                    failed.store(errno, Ordering::SeqCst);
                }
                // Where each write is durable, no other bytes depend on one that found no space.
                if !self.writes_durably() || !lacks_space(errno) {
                    run.fail(errno);
                }
                reports.fail(errno);
            }
        };
        if Current::get().is_none() && Worker::here().is_some() {
            // Code beside a fiber: its worker would wait for the other calls.
            return call().inspect_err(note);
        }
        let reporter = reports.begin()?;
        let value = call().inspect_err(note)?;
        if promises == Promises::Nothing {
            return Ok(value);
        }
        match reporter.has_succeeded()? {
            Ok(()) => Ok(value),
            Err(errno) => Err(failed_meanwhile(errno)),
        }
    }

    /// Makes a write that returns when its bytes are durable. It fails after a write-back has
    /// failed, because a write to the same pages may not reach the disk (on ext4), though the
    /// kernel reports no error.
    ///
    /// A direct write is no exception: where a file system cannot perform it (ext4 without extents,
    /// into a hole), the kernel writes through the page cache instead.
    pub(in crate::fs) fn write_durably<T>(
        &self,
        call: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        match self.syncs().failed.load(Ordering::SeqCst) {
            0 => self.report_by(Promises::Durable, call),
            errno => Err(failed_before(errno)),
        }
    }

    /// Makes a write that returns when its bytes are durable if the file was opened so (`O_DSYNC`,
    /// `O_SYNC`).
    #[inline]
    pub(in crate::fs) fn write_as_opened<T>(
        &self,
        write: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        if self.writes_durably() { self.write_durably(write) } else { write() }
    }

    pub(super) fn syncs(&self) -> &Arc<Syncs> {
        self.syncs.get_or_init(Arc::default)
    }

    fn sync(&self, needs_all: bool) -> io::Result<()> {
        self.syncs().run.run(needs_all, |needs_all| self.perform_sync(!needs_all), failed_before)
    }

    fn perform_sync(&self, data_only: bool) -> RunEnd {
        let op = Op::File(FileOp::Sync { fd: self.fd(), data_only });
        let result = self.report_by(Promises::Durable, || {
            if let Some(current) = self.ring() {
                return retry(current, op).map(drop);
            }
            // SAFETY: the op has no pointers.
            sys::result_of(unsafe { blocking::perform(&op) }).map(drop)
        });
        match result {
            Ok(()) => RunEnd::Done,
            Err(error) => match error.raw_os_error() {
                Some(errno) => RunEnd::Failed { errno, lasts: lasting(&error).is_some() },
                // A cancel, or another call has failed.
                None => RunEnd::GivenUp(error),
            },
        }
    }
}

/// Returns the errno of an error that fails all later syncs.
fn lasting(error: &io::Error) -> Option<i32> {
    let is_harmless = |errno: &i32| NOTHING_WRITTEN.contains(errno) || REFUSALS.contains(errno);
    if cancelled::reason_of(error).is_some() {
        return None;
    }
    error.raw_os_error().filter(|errno| !is_harmless(errno))
}

/// Whether the error means that there was no space for a write.
fn lacks_space(errno: i32) -> bool {
    matches!(errno, libc::ENOSPC | libc::EDQUOT)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::failed_before;
    use crate::fiber;
    use crate::sync::shared_run::{RunEnd, SharedRun};
    use cringle_run::run::Builder;
    use std::io;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    fn never(_: i32) -> io::Error {
        panic!("nothing has failed before")
    }

    /// Callers of fibers and threads, whose calls begin after they have written.
    #[test]
    fn each_caller_returns_after_a_call_that_covers_it() {
        const CALLERS: usize = 30;
        let (shared, is_led) = (SharedRun::new(), AtomicBool::new(false));
        let (written, covered) = (
            [const { AtomicUsize::new(0) }; CALLERS + 1],
            [const { AtomicUsize::new(0) }; CALLERS + 1],
        );
        let (calls, asks) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = |caller: usize| {
            for number in 1..=50 {
                written[caller].store(number, Ordering::SeqCst);
                asks.fetch_add(1, Ordering::SeqCst);
                let make = |_| {
                    assert!(!is_led.swap(true, Ordering::SeqCst), "two callers lead");
                    calls.fetch_add(1, Ordering::SeqCst);
                    let seen = written.each_ref().map(|written| written.load(Ordering::SeqCst));
                    fiber::sleep(Duration::from_micros(50));
                    for (covered, seen) in covered.iter().zip(seen) {
                        covered.store(seen, Ordering::SeqCst);
                    }
                    is_led.store(false, Ordering::SeqCst);
                    RunEnd::Done
                };
                shared.run(false, make, never).unwrap();
                assert!(covered[caller].load(Ordering::SeqCst) >= number);
            }
        };
        let work = &work;
        std::thread::scope(|threads| {
            threads.spawn(move || work(CALLERS));
            let run = Builder::new().workers(2).run(|| {
                fiber::scope(|s| {
                    (0..CALLERS).for_each(|caller| drop(s.spawn(move || work(caller))))
                });
            });
            run.unwrap();
        });
        let (calls, asks) = (calls.into_inner(), asks.into_inner());
        assert!(calls * 2 < asks, "{calls} calls for {asks}");
    }

    /// Asks by fibers of one worker while the first call is made. `first` ends that call.
    fn behind_a_first_call(
        first: impl FnOnce() -> RunEnd + Send,
        others: impl Fn(&SharedRun) + Sync,
    ) -> io::Result<()> {
        let shared = SharedRun::new();
        let run = Builder::new().workers(1).run(|| {
            fiber::scope(|s| {
                let leader = s.spawn(|| {
                    let make = |_| {
                        // The others ask meanwhile.
                        (0..5).for_each(|_| fiber::yield_now());
                        first()
                    };
                    shared.run(false, make, never)
                });
                fiber::yield_now();
                for _ in 0..3 {
                    s.spawn(|| others(&shared));
                }
                leader.join().unwrap()
            })
        });
        run.unwrap()
    }

    #[test]
    fn a_failure_that_lasts_ends_all_calls() {
        let errno = libc::EIO;
        let result = behind_a_first_call(
            || RunEnd::Failed { errno, lasts: true },
            |shared| {
                for _ in 0..2 {
                    let failed = |errno| io::Error::other(format!("failed before: {errno}"));
                    let result = shared.run(false, |_| panic!("it has failed before"), failed);
                    assert_eq!(result.unwrap_err().to_string(), "failed before: 5");
                }
            },
        );
        assert_eq!(result.unwrap_err().raw_os_error(), Some(errno));
    }

    #[test]
    fn a_failure_is_that_of_all_whom_the_call_covers_and_need_not_last() {
        let calls = AtomicUsize::new(0);
        let result = behind_a_first_call(
            || RunEnd::Done,
            |shared| {
                let make = |_| {
                    calls.fetch_add(1, Ordering::SeqCst);
                    RunEnd::Failed { errno: libc::EINVAL, lasts: false }
                };
                let error = shared.run(false, make, never).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
            },
        );
        result.unwrap();
        assert_eq!(calls.into_inner(), 1);
    }

    #[test]
    fn a_leader_that_gives_up_hands_the_lead_on() {
        let calls = AtomicUsize::new(0);
        let result = behind_a_first_call(
            || RunEnd::GivenUp(io::Error::other("given up")),
            |shared| {
                let make = |_| match calls.fetch_add(1, Ordering::SeqCst) {
                    0 => RunEnd::GivenUp(io::Error::other("given up, too")),
                    _ => RunEnd::Done,
                };
                let result = shared.run(false, make, never);
                assert!(result.is_ok() || calls.load(Ordering::SeqCst) == 1);
            },
        );
        assert_eq!(result.unwrap_err().to_string(), "given up");
        assert_eq!(calls.into_inner(), 2, "one gives up, and one makes the call for the rest");
    }

    #[test]
    fn all_is_done_if_one_of_them_needs_it() {
        let needed = AtomicUsize::new(0);
        let asks = AtomicUsize::new(0);
        let result = behind_a_first_call(
            || RunEnd::Done,
            |shared| {
                let needs_all = asks.fetch_add(1, Ordering::SeqCst) == 2;
                let make = |needs_all| {
                    needed.fetch_add(usize::from(needs_all), Ordering::SeqCst);
                    RunEnd::Done
                };
                shared.run(needs_all, make, never).unwrap();
            },
        );
        result.unwrap();
        assert_eq!((asks.into_inner(), needed.into_inner()), (3, 1));
    }

    #[test]
    fn a_cancelled_waiter_leaves_the_others_alone() {
        let (shared, calls) = (SharedRun::new(), AtomicUsize::new(0));
        let make = |_| {
            calls.fetch_add(1, Ordering::SeqCst);
            (0..20).for_each(|_| fiber::yield_now());
            RunEnd::Done
        };
        let run = Builder::new().workers(1).run(|| {
            fiber::scope(|outer| {
                let leader = outer.spawn(|| shared.run(false, make, never));
                fiber::yield_now();
                let stays = outer.spawn(|| shared.run(false, make, never));
                fiber::scope(|inner| {
                    let leaves = inner.spawn(|| shared.run(false, make, never).is_err());
                    (0..5).for_each(|_| fiber::yield_now());
                    inner.cancel();
                    assert!(leaves.join().unwrap());
                });
                leader.join().unwrap().unwrap();
                stays.join().unwrap().unwrap();
            });
        });
        run.unwrap();
        assert_eq!(calls.into_inner(), 2);
    }

    /// If such code waited for the leader, neither it nor the worker would continue.
    #[test]
    fn code_beside_a_fiber_makes_a_call_of_its_own() {
        let calls = AtomicUsize::new(0);
        let result = behind_a_first_call(
            || RunEnd::Done,
            |shared| {
                let make = |_| {
                    calls.fetch_add(1, Ordering::SeqCst);
                    RunEnd::Done
                };
                let sync = || shared.run(false, make, never);
                cringle_core::foreign::call_beside(sync).unwrap().unwrap();
            },
        );
        result.unwrap();
        assert_eq!(calls.into_inner(), 3);
    }

    #[test]
    fn a_call_that_fails_from_memory_lets_others_run_and_is_refused_after_a_cancel() {
        let shared = SharedRun::new();
        let end = RunEnd::Failed { errno: libc::EIO, lasts: true };
        shared.run(false, |_| end, never).unwrap_err();
        let run = Builder::new().workers(1).run(|| {
            let again = || shared.run(false, |_| panic!("it has failed before"), failed_before);
            let others_ran = AtomicBool::new(false);
            fiber::scope(|s| {
                s.spawn_local(|| {
                    while !others_ran.load(Ordering::SeqCst) {
                        again().unwrap_err();
                    }
                });
                s.spawn_local(|| others_ran.store(true, Ordering::SeqCst));
            });
            fiber::scope(|s| {
                let refused = s.spawn(|| {
                    fiber::park_cancellable().unwrap_err();
                    again().unwrap_err()
                });
                fiber::yield_now();
                s.cancel();
                assert!(crate::cancel::reason(&refused.join().unwrap()).is_some());
            });
        });
        run.unwrap();
    }
}
