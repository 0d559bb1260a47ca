//! Calling the kernel: when, and what its answers mean.

use super::Uring;
use crate::driver::{Feature, Wait};
use crate::sys;
use std::io;
use std::time::{Duration, Instant};

pub(super) const ENTER_GETEVENTS: u32 = 1;
pub(super) const ENTER_SQ_WAKEUP: u32 = 1 << 1;
pub(super) const ENTER_SQ_WAIT: u32 = 1 << 2;
pub(super) const ENTER_EXT_ARG: u32 = 1 << 3;
pub(super) const ENTER_REGISTERED_RING: u32 = 1 << 4;
pub(super) const ENTER_NO_IOWAIT: u32 = 1 << 7;

/// Turns after which the kernel is entered though nothing seems to wait there. (An enter costs as
/// much as some hundred switches between fibers.)
const TURNS_BLIND: u32 = 61;

impl Uring {
    /// What a turn has to do with the ring: whether [`reap`](Self::reap) may find something, and
    /// whether something waits for [`enter`](Self::enter).
    #[inline]
    pub(crate) fn attention(&mut self) -> (bool, bool) {
        if self.is_polling() {
            return (true, true);
        }
        // Where completions are deferred, they come into the queue only while the kernel is
        // entered, and the ring says when it should be.
        let reap = self.unreaped || !self.features.has(Feature::DeferTaskrun);
        if self.unsubmitted > 0 && !self.sqpoll {
            return (reap, true);
        }
        // With nothing in the kernel nothing comes from there but wake-ups, whose messages are seen
        // in the inbox.
        if self.is_idle() && self.unsubmitted == 0 {
            return (reap, false);
        }
        // Linux 6.1 puts what a thread of its own has done into the queue at any time, and no flag says so.
        let reap = reap || !self.ring.completion().is_empty();
        let queue = self.ring.submission();
        let flagged = queue.taskrun() || queue.cq_overflow();
        let asleep = self.sqpoll && self.unsubmitted > 0 && queue.need_wakeup();
        drop(queue);
        (reap, flagged || asleep || self.cancels.wants_enter() || self.is_blind())
    }

    /// Without the flag that says when deferred work waits, the kernel is entered now and then.
    #[inline]
    pub(super) fn is_blind(&mut self) -> bool {
        if self.features.has(Feature::TaskrunFlag) || !self.features.has(Feature::DeferTaskrun) {
            return false;
        }
        self.turns_unseen += 1;
        self.turns_unseen >= TURNS_BLIND
    }

    /// Has the kernel take everything that is queued: a message for another ring among it must not
    /// be sent when that ring's number may mean another (**I9**).
    pub(crate) fn flush(&mut self) {
        while !self.ring.submission().is_empty() {
            self.call_enter(0, ENTER_GETEVENTS, None);
            self.reap(|_| {});
        }
    }

    /// Submits what is queued, runs the kernel's deferred work, and waits if asked to.
    ///
    /// Where something is read from a disk or written to one, submitting and waiting are two calls: what
    /// ends within the first needs no second, and tells what is behind it ([`submit`](Self::submit)).
    pub(crate) fn enter(&mut self, wait: Wait) {
        self.arm_wake();
        self.queue_cancels();
        if self.is_polling() {
            return self.enter_polling(wait);
        }
        let Wait::Until(deadline) = wait else { return self.submit() };
        // Unless something is there already, or a disk's answer is to be looked at first.
        let at_once = self.unsubmitted_disk == 0 && self.ring.completion().is_empty();
        if self.unsubmitted > 0 && !at_once {
            self.submit();
        }
        if !self.ring.completion().is_empty() {
            return;
        }
        let mut deadline = earlier(deadline, self.cancels.next_due());
        let unheard = !self.wake.armed && !self.wake.closing;
        let unasked = self.cancels.has_backlog() && self.cancels.in_flight == 0;
        if unheard || unasked {
            // Nobody could wake a sleeper whose wake-up read is not armed, or whose cancels found no
            // room: it naps instead.
            deadline = earlier(deadline, Some(Instant::now() + Duration::from_millis(1)));
        }
        let timeout = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let mut flags = ENTER_GETEVENTS;
        if self.features.has(Feature::NoIowait) {
            flags |= ENTER_NO_IOWAIT;
        }
        self.call_enter(1, flags, timeout);
    }

    pub(super) fn submit(&mut self) {
        let transfers = std::mem::take(&mut self.unsubmitted_disk);
        let under_way = self.in_flight.saturating_sub(self.unsubmitted) as usize;
        let ended_before = self.ring.completion().len();
        self.call_enter(0, ENTER_GETEVENTS, None);
        // While others are under way it cannot be told whose completions come now.
        if transfers > 0 && under_way <= ended_before {
            let ended = self.ring.completion().len() - ended_before;
            self.disk_answers = ended < transfers.div_ceil(2) as usize;
        }
    }

    /// `io_uring_enter`, with each of its answers.
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
            // A short count leaves the rest queued, in order: the next call takes them.
            Ok(taken) => {
                self.unsubmitted = queued - taken.min(queued);
                self.counts.entered(taken);
            }
            // The time is up, or a signal came: whoever waits looks again.
            Err(libc::ETIME | libc::EINTR) => self.counts.entered(0),
            // Nothing was taken, everything stays queued. The kernel wants completions to be
            // reaped (EBUSY) or has no memory for requests right now (EAGAIN): the caller reaps
            // after every call, and one that meant to sleep does so, for at most a millisecond.
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
        // SAFETY: the queued entries hold to `push`'s contract, and the argument is a live
        // structure of the size given, as the flag says.
        let res = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.enter_fd,
                submit,
                want,
                flags,
                pointer,
                size,
            )
        };
        if res < 0 { Err(sys::errno()) } else { Ok(res as u32) }
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

/// `io_uring_enter` gave an answer that only a bug, or a ring that something else destroyed, can
/// cause. Fibers cannot be unwound: the kernel may still write into their frames.
#[cold]
pub(super) fn broken_ring(errno: i32) -> ! {
    let error = io::Error::from_raw_os_error(errno);
    crate::sys::report(format_args!(
        "io_uring_enter failed: {error}. The worker's ring is unusable (was its descriptor \
         closed by something else, or a seccomp filter installed after start?); aborting, because \
         the kernel may still write into buffers of waiting fibers"
    ));
    std::process::abort()
}
