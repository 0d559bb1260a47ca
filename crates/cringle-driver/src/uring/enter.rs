//! Calls of `io_uring_enter`: when a worker makes them, and how their results are handled.

use super::Uring;
use crate::{Feature, Wait};
use cringle_sys::{self as sys, syscall};
use std::io;
use std::time::{Duration, Instant};

pub(super) const ENTER_GETEVENTS: u32 = 1;
pub(super) const ENTER_SQ_WAKEUP: u32 = 1 << 1;
pub(super) const ENTER_SQ_WAIT: u32 = 1 << 2;
pub(super) const ENTER_EXT_ARG: u32 = 1 << 3;
pub(super) const ENTER_REGISTERED_RING: u32 = 1 << 4;
pub(super) const ENTER_NO_IOWAIT: u32 = 1 << 7;

/// On kernels without `TASKRUN_FLAG`, the number of turns after which the kernel is entered in case
/// it has deferred work. (An enter costs as much as some hundred switches between fibers.)
const TURNS_BLIND: u32 = 61;

impl Uring {
    /// Whether [`reap`](Self::reap) may find a completion, and whether the worker should
    /// [`enter`](Self::enter) the kernel.
    #[inline]
    pub(crate) fn attention(&mut self) -> (bool, bool) {
        if self.is_polling() {
            return (true, true);
        }
        // With deferred task work, completions arrive in the queue only while the kernel is
        // entered, and a flag in the ring says when to enter it.
        let reap = self.unreaped || !self.features.has(Feature::DeferTaskrun);
        if self.unsubmitted > 0 && !self.sqpoll {
            return (reap, true);
        }
        // With no op in the kernel, only wake-ups can arrive, and the inbox has their messages.
        if self.is_idle() && self.unsubmitted == 0 {
            return (reap, false);
        }
        // On Linux 6.1, kernel threads post completions at any time, and no flag says so.
        let reap = reap || !self.ring.completion().is_empty();
        let queue = self.ring.submission();
        let flagged = queue.taskrun() || queue.cq_overflow();
        let asleep = self.sqpoll && self.unsubmitted > 0 && queue.need_wakeup();
        drop(queue);
        (reap, flagged || asleep || self.cancels.wants_enter() || self.is_blind())
    }

    /// Whether the kernel should be entered because no flag would say that it has deferred work.
    #[inline]
    pub(super) fn is_blind(&mut self) -> bool {
        if self.features.has(Feature::TaskrunFlag) || !self.features.has(Feature::DeferTaskrun) {
            return false;
        }
        self.turns_unseen += 1;
        self.turns_unseen >= TURNS_BLIND
    }

    /// Submits every queued entry. A queued message to another ring must not be sent after that
    /// ring was closed, when its number may mean another file (**I9**).
    pub(crate) fn flush(&mut self) {
        while !self.ring.submission().is_empty() {
            self.call_enter(0, ENTER_GETEVENTS, None);
            self.reap(|_| {});
        }
    }

    /// Submits the queued entries, runs the kernel's deferred work, and waits as `wait` says.
    ///
    /// Positioned transfers are submitted by one call and waited for by another. If they end within
    /// the first, no second call is needed; and it shows whether a disk or the page cache answers
    /// ([`submit`](Self::submit)).
    pub fn enter(&mut self, wait: Wait) {
        self.enter_for(wait, 1);
    }

    /// Enters as [`enter`](Self::enter) does. A wait ends at this number of completions at the
    /// latest, and without a need to handle any before: no message and no cancel may arrive.
    pub fn enter_for(&mut self, wait: Wait, completions: u32) {
        self.arm_wake();
        self.queue_cancels();
        if self.is_polling() {
            return self.enter_polling(wait);
        }
        let Wait::Until(deadline) = wait else { return self.submit() };
        // One call submits and waits, unless a completion has arrived already, or transfers among
        // the entries need the first call to themselves.
        let at_once = self.unsubmitted_disk == 0 && self.ring.completion().is_empty();
        if self.unsubmitted > 0 && !at_once {
            self.submit();
        }
        if !self.ring.completion().is_empty() {
            return;
        }
        let mut deadline = earlier(deadline, self.cancels.next_due());
        let cannot_be_woken = !self.wake.armed && !self.wake.closing;
        let has_stuck_cancels = self.cancels.has_backlog() && self.cancels.in_flight == 0;
        if cannot_be_woken || has_stuck_cancels {
            // The read of the eventfd or a cancel found no room in the queue, and no cqe would end
            // the sleep: sleep briefly and try again.
            deadline = earlier(deadline, Some(sys::now() + Duration::from_millis(1)));
        }
        let timeout = deadline.map(|at| at.saturating_duration_since(sys::now()));
        let mut flags = ENTER_GETEVENTS;
        if self.features.has(Feature::NoIowait) {
            flags |= ENTER_NO_IOWAIT;
        }
        self.call_enter(completions, flags, timeout);
    }

    /// Submits the queued entries. Records whether the transfers among them ended within the call.
    pub(super) fn submit(&mut self) {
        let transfers = std::mem::take(&mut self.unsubmitted_disk);
        let releases = self.unsubmitted_releases;
        let ops = self.unsubmitted.saturating_sub(releases);
        let in_flight_before = self.in_flight.saturating_sub(ops) as usize;
        let ended_before = self.ring.completion().len();
        self.call_enter(0, ENTER_GETEVENTS, None);
        // With other ops in flight, these completions could be theirs.
        if transfers > 0 && in_flight_before <= ended_before {
            let ended = self.ring.completion().len() - ended_before;
            self.disk_answers = ended < (transfers + releases).div_ceil(2) as usize;
        }
    }

    /// Calls `io_uring_enter` and handles each of its results.
    pub(super) fn call_enter(&mut self, want: u32, flags: u32, timeout: Option<Duration>) {
        let queued = self.ring.submission().len() as u32;
        let mut flags = flags | self.enter_flags;
        if self.sqpoll && self.ring.submission().need_wakeup() {
            flags |= ENTER_SQ_WAKEUP;
        }
        if self.ring.submission().cq_overflow() {
            self.counts.overflows.bump();
        }
        self.counts.in_flight.set(u64::from(self.in_flight + self.waiting));
        self.unreaped = true;
        self.turns_unseen = 0;
        match self.enter_syscall(queued, want, flags, timeout) {
            // After a short count the rest stays queued, in order, for the next call.
            Ok(taken) => {
                self.unsubmitted = queued - taken.min(queued);
                self.unsubmitted_releases = self.unsubmitted_releases.min(self.unsubmitted / 2);
                self.counts.entered(taken);
            }
            // The time is up or a signal arrived: the caller reaps and decides again.
            Err(libc::ETIME | libc::EINTR) => self.counts.entered(0),
            // Nothing was consumed; every entry stays queued (I5). The kernel wants completions to
            // be reaped first (EBUSY) or has no memory for requests now (EAGAIN). The caller reaps
            // after every call. If it meant to sleep, it sleeps here, for at most a millisecond.
            Err(libc::EAGAIN | libc::EBUSY) if want > 0 => {
                let pause = Duration::from_millis(1);
                let pause = timeout.map_or(pause, |timeout| timeout.min(pause));
                let _ = self.enter_syscall(0, 1, flags, Some(pause));
            }
            Err(libc::EAGAIN | libc::EBUSY) => {}
            Err(errno) => broken_ring(errno),
        }
    }

    pub(super) fn enter_syscall(
        &mut self,
        submit: u32,
        want: u32,
        flags: u32,
        timeout: Option<Duration>,
    ) -> Result<u32, i32> {
        #[cfg(test)]
        if let Some(errno @ 1..) = self.injected_errors.pop_front() {
            return Err(errno);
        }
        let spec;
        let arg;
        let (flags, pointer, size) = match timeout {
            None => (flags, std::ptr::null(), 0),
            Some(timeout) => {
                spec = sys::timespec(timeout);
                arg = EnterArg {
                    sigmask: 0,
                    sigmask_size: 0,
                    min_wait_us: 0,
                    timespec: &raw const spec as u64,
                };
                (flags | ENTER_EXT_ARG, &raw const arg, size_of::<EnterArg>())
            }
        };
        // SAFETY: I1. The queued entries hold to the contract of `push`; and `ENTER_EXT_ARG` says
        // that the argument is a live structure of the size given.
        let res = unsafe {
            syscall!(SYS_io_uring_enter, self.enter_fd, submit, want, flags, pointer, size)
        };
        if res < 0 { Err(-res as i32) } else { Ok(res as u32) }
    }
}

/// `struct io_uring_getevents_arg`.
#[repr(C)]
struct EnterArg {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_us: u32,
    timespec: u64,
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

/// Aborts after an error that only a bug can cause, or other code that closed the ring. Fibers
/// cannot be unwound: the kernel may still write into their frames.
#[cold]
pub(super) fn broken_ring(errno: i32) -> ! {
    let error = io::Error::from_raw_os_error(errno);
    cringle_sys::report(format_args!(
        "io_uring_enter failed: {error}. The worker's ring is unusable (was its descriptor \
         closed by something else, or a seccomp filter installed after start? Allow io_uring_enter \
         in that filter, or install it before the runtime starts, which then does without a ring); \
         aborting, because the kernel may still write into buffers of waiting fibers"
    ));
    std::process::abort()
}
