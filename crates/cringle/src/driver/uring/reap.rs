//! Taking completions, each towards the frame it is owed to.

use super::cancel::Cancels;
use super::{CANCEL_TAG, INTERNAL, Uring, WAKE_CANCELLED, WAKE_MESSAGE, WAKE_READ, WakeRead};
use crate::driver::Token;
use crate::driver::completion::{CancelState, Completion, prefetch};
use io_uring::cqueue;

impl Uring {
    /// Takes every completion that is in the queue. `sink` gets the token of each frame to which
    /// nothing more is owed; it runs no fiber.
    #[inline]
    pub(crate) fn reap(&mut self, mut sink: impl FnMut(Token)) {
        self.unreaped = false;
        if self.is_polling() {
            self.reap_polled(&mut sink);
        }
        let mut queue = self.ring.completion();
        let mut next = queue.next();
        while let Some(cqe) = next {
            // Completions lie on the stacks of their fibers, which other fibers' work has pushed
            // out of the cache: the next one is fetched while this one is handled.
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
            // SAFETY: I1. `push` stored the address of a completion that its frame keeps until
            // nothing is owed to it, and this cqe is owed.
            let completion = unsafe { &*(user_data as *const Completion) };
            if cqueue::more(cqe.flags()) {
                completion.set_early_result(cqe.result());
                continue;
            }
            let result = match cqueue::notif(cqe.flags()) {
                true => completion.early_result(),
                false => cqe.result(),
            };
            match completion.counts_against_limit() {
                true => self.in_flight -= 1,
                false => self.waiting -= 1,
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

/// An entry that does not end an op.
#[cold]
pub(super) fn special(
    user_data: u64,
    result: i32,
    cancels: &mut Cancels,
    wake: &mut WakeRead,
    undelivered: &mut Vec<u32>,
) -> Option<Token> {
    match user_data {
        WAKE_READ => wake.armed = false,
        WAKE_MESSAGE | WAKE_CANCELLED => {}
        _ if user_data & INTERNAL != 0 => undelivered.push(user_data as u32),
        _ => {
            // SAFETY: I1. A cancel that was given to the kernel is owed to its op's frame.
            let completion = unsafe { &*((user_data & !CANCEL_TAG) as *const Completion) };
            cancels.in_flight -= 1;
            completion.cancel.set(CancelState::No);
            let under_way = completion.is_cancellable();
            if under_way && result != 0 {
                cancels.retry_later(completion);
            }
            return completion.waiter_ref().settle_one();
        }
    }
    None
}
