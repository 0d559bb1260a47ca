//! Asking the kernel to give an op up.
//!
//! A cancel is never dropped because the queue is full: it waits in a backlog that holds at most
//! one entry for each op in flight. It is asked again (1 ms, doubling) while the op's own cqe is
//! missing, because the kernel answers `EALREADY` for an op that a kernel thread is about to run,
//! and leaves it armed. A cancel still in the backlog when its op's cqe comes is withdrawn; one
//! already given to the kernel is owed to the op's frame like the op itself, so that no later op
//! in the same frame can be hit by it (**I1**, **I5**, **I9**). An op whose result has come, and whose
//! memory the kernel still reads (a send without a copy), is not asked for: that ends when the peer has it.

use crate::driver::completion::{CancelState, Completion};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The longest pause between two askings.
const MAX_TRIES: u8 = 10;

#[derive(Debug, Default)]
pub(super) struct Cancels {
    /// Null in the place of one that was withdrawn: any number of ops may end while theirs wait here, and
    /// none is looked for.
    backlog: VecDeque<*const Completion>,
    /// The number of the first place; a completion knows its own.
    first_place: u64,
    /// Those in the backlog that were not withdrawn.
    queued: usize,
    again: Vec<(Instant, *const Completion)>,
    /// Cancels whose cqe has not come: they have a part of the completion queue to themselves.
    pub(super) in_flight: u32,
}

impl Cancels {
    /// Remembers that this op is to be cancelled. Asking twice is asking once.
    pub(super) fn want(&mut self, completion: &Completion) {
        let under_way = completion.is_cancellable();
        if under_way && completion.cancel.get() == CancelState::No {
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
        debug_assert!(std::ptr::eq(self.backlog[place], completion));
        self.backlog[place] = std::ptr::null();
        self.queued -= 1;
    }

    /// The op has ended: it is no longer asked for.
    pub(super) fn withdraw(&mut self, completion: &Completion) {
        match completion.cancel.get() {
            CancelState::No | CancelState::InFlight => return,
            CancelState::Queued => self.unqueue(completion),
            CancelState::RetryLater => {
                self.again.retain(|(_, waits)| !std::ptr::eq(*waits, completion))
            }
        }
        completion.cancel.set(CancelState::No);
    }

    /// The next op to ask the kernel about.
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

    /// There was no room for what [`next`](Self::next) gave.
    pub(super) fn put_back(&mut self, completion: *const Completion) {
        self.first_place -= 1;
        self.backlog.push_front(completion);
        self.queued += 1;
    }

    /// Plans to ask again about an op that the kernel did not give up.
    pub(super) fn retry_later(&mut self, completion: &Completion) {
        let tries = completion.cancel_attempts.get().min(MAX_TRIES);
        completion.cancel_attempts.set(tries + 1);
        completion.cancel.set(CancelState::RetryLater);
        self.again.push((Instant::now() + Duration::from_millis(1 << tries), completion));
    }

    /// Moves those whose pause is over to the backlog.
    pub(super) fn take_due(&mut self) {
        if self.again.is_empty() {
            return;
        }
        let now = Instant::now();
        let all = std::mem::take(&mut self.again);
        let (due, later): (Vec<_>, _) = all.into_iter().partition(|&(at, _)| at <= now);
        self.again = later;
        for (_, completion) in due {
            // SAFETY: I1. The op's cqe has not come (else it would have been withdrawn), so its
            // frame still holds the completion.
            self.queue(unsafe { &*completion });
        }
    }

    /// When [`take_due`](Self::take_due) has something to do.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.again.iter().map(|&(at, _)| at).min()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queued == 0 && self.again.is_empty() && self.in_flight == 0
    }

    /// Whether some wait to be asked for, or to be asked for again now.
    #[inline]
    pub(super) fn wants_enter(&self) -> bool {
        self.queued > 0 || self.next_due().is_some_and(|due| due <= Instant::now())
    }

    pub(super) fn has_backlog(&self) -> bool {
        self.queued > 0
    }
}
