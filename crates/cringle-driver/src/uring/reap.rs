//! Completions from the completion queue to their frames.

use super::cancel::Cancels;
use super::{
    CANCEL_TAG, INTERNAL, RELEASE_TAG, Uring, WAKE_CANCELLED, WAKE_MESSAGE, WAKE_READ, WakeRead,
};
use crate::Token;
use crate::completion::{CancelState, Completion, prefetch};
use io_uring::cqueue;

impl Uring {
    /// Takes every completion in the queue. `sink` gets the token of each frame to which nothing
    /// more is owed; it runs no fiber.
    #[inline]
    pub fn reap(&mut self, mut sink: impl FnMut(Token)) {
        self.unreaped = false;
        if self.is_polling() {
            self.reap_polled(&mut sink);
        }
        let mut queue = self.ring.completion();
        let mut next = queue.next();
        while let Some(cqe) = next {
            // Completions lie on the stacks of their fibers, which have left the cache since other
            // fibers ran: the next one is prefetched while this one is handled.
            next = queue.next();
            if let Some(next) = &next {
                prefetch(next.user_data());
            }
            let user_data = cqe.user_data();
            if user_data & (INTERNAL | CANCEL_TAG) != 0 {
                let settled = special(
                    user_data,
                    cqe.result(),
                    &mut self.cancels,
                    &mut self.wake,
                    &mut self.undelivered,
                );
                settled.map(&mut sink);
                continue;
            }
            // SAFETY: I1. `push` stored the address of a completion that by its contract stays in
            // place until nothing is owed to its frame, and this cqe is owed.
            let completion = unsafe { &*((user_data & !RELEASE_TAG) as *const Completion) };
            let Some(result) = take(completion, &cqe) else { continue };
            if completion.counts_against_limit() {
                self.in_flight -= 1;
            } else {
                self.waiting -= 1;
            }
            if completion.cancel.get() != CancelState::No {
                self.cancels.withdraw(completion);
            }
            completion.finish(result);
            if let Some(token) = completion.waiter_ref().settle_one() {
                sink(token);
            }
        }
        self.counts.in_flight.set(u64::from(self.in_flight + self.waiting));
    }
}

/// Takes an entry of an op. Returns the op's result with its last entry.
#[inline]
fn take(completion: &Completion, cqe: &cqueue::Entry) -> Option<i32> {
    if cqe.user_data() & RELEASE_TAG != 0 {
        return completion.take_release();
    }
    if cqueue::more(cqe.flags()) {
        completion.set_early_result(cqe.result());
        return None;
    }
    if cqueue::notif(cqe.flags()) {
        return Some(completion.early_result());
    }
    completion.take_result(cqe.result())
}

/// Handles an entry that does not end an op. Returns the token of a frame that it settles.
#[cold]
pub(super) fn special(
    user_data: u64,
    result: i32,
    cancels: &mut Cancels,
    wake: &mut WakeRead,
    undelivered: &mut Vec<u32>,
) -> Option<Token> {
    match user_data {
        WAKE_READ => {
            debug_assert!(wake.armed, "I4: the read of the eventfd was answered twice");
            wake.armed = false;
        }
        WAKE_MESSAGE | WAKE_CANCELLED => {}
        _ if user_data & INTERNAL != 0 => undelivered.push(user_data as u32),
        _ => {
            // SAFETY: I1. Submitting a cancel counted its cqe as owed to the op's frame, and this
            // is that cqe: so the frame still holds the completion, even if the op itself has
            // ended.
            let completion = unsafe { &*((user_data & !CANCEL_TAG) as *const Completion) };
            cancels.in_flight -= 1;
            debug_assert_eq!(
                completion.cancel.get(),
                CancelState::InFlight,
                "I5: no cancel is owed"
            );
            completion.cancel.set(CancelState::No);
            if completion.is_cancellable() && result != 0 {
                cancels.retry_later(completion);
            }
            return completion.waiter_ref().settle_one();
        }
    }
    None
}
