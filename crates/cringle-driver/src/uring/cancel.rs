//! Cancels of ops, towards the kernel.
//!
//! A cancel is never dropped because the submission queue is full: it waits in a backlog, which
//! holds at most one entry for each op in flight. The kernel answers `EALREADY` for an op that an
//! io-wq thread is about to run, and leaves the op armed. So a cancel that was not answered 0 is
//! repeated, after 1 ms and then doubling, until the op's own cqe arrives. A cancel that is still
//! in the backlog then is withdrawn; the cqe of a submitted one is owed to the op's frame like the
//! op's own, so that it cannot hit a later op in the same frame (**I1**, **I5**, **I9**). An op
//! whose result has arrived and whose memory the kernel still reads (a send without a copy) is not
//! cancelled: it ends when the peer has the data.

use crate::completion::{CancelState, Completion};
use cringle_sys as sys;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The number of doublings of the pause between two attempts.
const MAX_DOUBLINGS: u8 = 10;

#[derive(Debug, Default)]
pub(super) struct Cancels {
    /// Null where a cancel was withdrawn: any number of ops may end while their cancels wait here,
    /// so a withdrawal must not search.
    backlog: VecDeque<*const Completion>,
    /// The number of the first place. A completion knows the number of its own.
    first_place: u64,
    /// The number of entries in the backlog that are not null.
    queued: usize,
    /// Cancels to repeat, and when.
    retries: Vec<(Instant, *const Completion)>,
    /// Cancels whose cqe has not arrived. A part of the completion queue is reserved for them.
    pub(super) in_flight: u32,
}

impl Cancels {
    /// Queues a cancel of the op, unless one is queued or in flight or could have no effect.
    pub(super) fn request(&mut self, completion: &Completion) {
        if completion.is_cancellable() && completion.cancel.get() == CancelState::No {
            self.queue(completion);
        }
    }

    fn queue(&mut self, completion: &Completion) {
        completion.cancel.set(CancelState::Queued);
        completion.set_cancel_place(self.first_place + self.backlog.len() as u64);
        self.backlog.push_back(completion);
        self.queued += 1;
    }

    fn unqueue(&mut self, completion: &Completion) {
        let place = (completion.cancel_place.get() - self.first_place) as usize;
        debug_assert!(std::ptr::eq(self.backlog[place], completion), "I9: not this op's cancel");
        self.backlog[place] = std::ptr::null();
        self.queued -= 1;
    }

    /// Withdraws the cancel of an op that has ended, unless the kernel has it.
    pub(super) fn withdraw(&mut self, completion: &Completion) {
        match completion.cancel.get() {
            CancelState::No | CancelState::InFlight => return,
            CancelState::Queued => self.unqueue(completion),
            CancelState::RetryLater => {
                self.retries.retain(|(_, waits)| !std::ptr::eq(*waits, completion))
            }
        }
        completion.cancel.set(CancelState::No);
    }

    /// Takes the next op to cancel from the backlog.
    pub(super) fn next(&mut self) -> Option<*const Completion> {
        loop {
            let completion = self.backlog.pop_front()?;
            self.first_place += 1;
            if !completion.is_null() {
                self.queued -= 1;
                return Some(completion);
            }
        }
    }

    /// Returns an op of [`next`](Self::next) for whose cancel there was no room.
    pub(super) fn put_back(&mut self, completion: *const Completion) {
        self.first_place -= 1;
        self.backlog.push_front(completion);
        self.queued += 1;
    }

    /// Schedules another cancel of an op that the kernel did not cancel.
    pub(super) fn retry_later(&mut self, completion: &Completion) {
        let attempts = completion.cancel_attempts.get().min(MAX_DOUBLINGS);
        completion.cancel_attempts.set(attempts + 1);
        completion.cancel.set(CancelState::RetryLater);
        self.retries.push((sys::now() + Duration::from_millis(1 << attempts), completion));
    }

    /// Moves the cancels whose pause is over to the backlog.
    #[inline]
    pub(super) fn take_due(&mut self) {
        if self.retries.is_empty() {
            return;
        }
        let now = sys::now();
        let all = std::mem::take(&mut self.retries);
        let (due, later): (Vec<_>, _) = all.into_iter().partition(|&(at, _)| at <= now);
        self.retries = later;
        for (_, completion) in due {
            // SAFETY: I1. The op's cqe has not been reaped: reaping withdraws the op's cancel, and
            // this one was still here. So the frame still holds the completion.
            self.queue(unsafe { &*completion });
        }
    }

    /// When [`take_due`](Self::take_due) next moves a cancel.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.retries.iter().map(|&(at, _)| at).min()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queued == 0 && self.retries.is_empty() && self.in_flight == 0
    }

    /// Whether a cancel is queued, or one is due to be repeated.
    #[inline]
    pub(super) fn wants_enter(&self) -> bool {
        self.queued > 0 || self.next_due().is_some_and(|due| due <= sys::now())
    }

    pub(super) fn has_backlog(&self) -> bool {
        self.queued > 0
    }
}
