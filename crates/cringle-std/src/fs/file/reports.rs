//! Calls that wait for a write-back of the same file at the same time: an `fsync`, a write with
//! `RWF_DSYNC`, a write of a file that is opened with `O_DSYNC`, a `sync_file_range`.
//!
//! The kernel reports failed write-backs to *one* call for each open file. If the pages of two
//! writes with `RWF_DSYNC` have failed, one returns the error, and the other one success. So a call
//! that has succeeded waits until all calls that had begun before its end have ended, too. If one
//! of them has failed, that call may have taken the report that was due to this one.
//!
//! A call that begins after the end of this one cannot take the report: by then this call has
//! checked for the failures of all write-backs that it waited for.
//!
//! Writes of a file that is opened with `O_DSYNC` or `O_SYNC` are among these calls also with
//! `O_DIRECT`: ext4 without extents writes into holes through the page cache.

use crate::sync::range_lock::{RangeGuard, RangeLock};
use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// See the module.
#[derive(Default)]
pub(super) struct Reports {
    /// The number of the next call.
    next: AtomicU64,
    /// Each call holds its number until it has ended, and a call that waits for others theirs.
    calls: RangeLock,
    failures: AtomicU64,
    /// The error of the last failure.
    errno: AtomicI32,
}

/// A call, until it is dropped.
pub(super) struct Reporter<'r> {
    reports: &'r Reports,
    number: RangeGuard<'r>,
    failures_before: u64,
}

impl Reports {
    /// A call begins. Fails if the fiber is cancelled.
    pub(super) fn begin(&self) -> io::Result<Reporter<'_>> {
        let failures_before = self.failures.load(Ordering::SeqCst);
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let number = self.calls.lock(number..number + 1)?;
        Ok(Reporter { reports: self, number, failures_before })
    }

    /// A call that has not ended yet has failed.
    pub(super) fn fail(&self, errno: i32) {
        self.errno.store(errno, Ordering::SeqCst);
        self.failures.fetch_add(1, Ordering::SeqCst);
    }
}

impl Reporter<'_> {
    /// The call has succeeded. Waits for the calls that have begun meanwhile, and returns the
    /// `errno` of a call that has failed since this one began. Fails if the fiber is cancelled.
    pub(super) fn has_succeeded(self) -> io::Result<Result<(), i32>> {
        let Reporter { reports, number, failures_before } = self;
        drop(number);
        let end = reports.next.load(Ordering::SeqCst);
        drop(reports.calls.lock(0..end)?);
        let has_none = reports.failures.load(Ordering::SeqCst) == failures_before;
        Ok(if has_none { Ok(()) } else { Err(reports.errno.load(Ordering::SeqCst)) })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Reports;
    use crate::fiber;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Makes a call that succeeds while another one is under way. Returns whether the call counts
    /// as a success.
    fn beside_another(begins_first: bool, fails: bool) -> bool {
        let (reports, has_ended) = (Reports::default(), AtomicBool::new(false));
        cringle_run::run::run(|| {
            fiber::scope(|s| {
                let mut own = None;
                if !begins_first {
                    own = Some(reports.begin().unwrap());
                }
                s.spawn_local(|| {
                    let other = reports.begin().unwrap();
                    (0..10).for_each(|_| fiber::yield_now());
                    if fails {
                        reports.fail(libc::EIO);
                    }
                    has_ended.store(true, Ordering::SeqCst);
                    drop(other);
                });
                fiber::yield_now();
                let own = own.unwrap_or_else(|| reports.begin().unwrap());
                let result = own.has_succeeded().unwrap().is_ok();
                assert!(has_ended.load(Ordering::SeqCst), "it has not waited for the other call");
                result
            })
        })
    }

    #[test]
    fn a_call_beside_one_that_fails_is_no_success() {
        assert!(!beside_another(true, true));
        assert!(!beside_another(false, true));
        assert!(beside_another(true, false));
        assert!(beside_another(false, false));
    }

    #[test]
    fn a_call_after_one_that_has_failed_is_a_success() {
        let reports = Reports::default();
        let failed = reports.begin().unwrap();
        reports.fail(libc::EIO);
        drop(failed);
        assert_eq!(reports.begin().unwrap().has_succeeded().unwrap(), Ok(()));
    }

    #[test]
    fn a_call_waits_for_none_that_begins_after_it_has_ended() {
        let reports = Reports::default();
        cringle_run::run::run(|| {
            fiber::scope(|s| {
                let first = reports.begin().unwrap();
                let waits = s.spawn_local(|| reports.begin().unwrap().has_succeeded().unwrap());
                fiber::yield_now();
                let later = reports.begin().unwrap();
                drop(first);
                assert_eq!(waits.join().unwrap(), Ok(()));
                drop(later);
            });
        });
    }
}
