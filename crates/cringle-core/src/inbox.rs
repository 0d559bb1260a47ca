//! Messages to a worker from other threads, and the wake-up of a sleeping worker.
//!
//! # No wake-up is lost
//!
//! One short lock protects everything. A sender pushes its message and checks whether the worker
//! sleeps *in the same critical section*. The worker checks for messages and marks itself asleep in
//! one critical section, before it sleeps. The second of the two sees the first:
//!
//! - Sender first: the worker finds the message and does not sleep.
//! - Worker first: the sender finds it asleep, clears the mark (so that one wake-up is sent, not
//!   one for each message) and sends a wake-up. That ends the sleep even if it arrives before the
//!   worker enters the kernel, because the ring's wait returns at once for a completion that is in
//!   the queue already.
//!
//! The bell, a descriptor, is removed under the same lock before it is closed, and is rung under
//! it. So a handle that outlives `run` never writes to a number that by then means another file
//! (**I9**). `loom_tests` explores the interleavings of this file.

use super::sync::{AtomicBool, Mutex, Ordering};
use std::collections::VecDeque;

/// Wakes a sleeping worker from a thread that has no ring. (A trait, so that the model can replace
/// the descriptor.)
pub trait Bell {
    fn ring(&self);
}

/// See the module.
pub struct Inbox<M, B> {
    state: Mutex<InboxState<M, B>>,
    /// Something may have arrived. Spares the worker the lock when nothing has.
    waiting: AtomicBool,
}

struct InboxState<M, B> {
    messages: VecDeque<M>,
    asleep: bool,
    /// `None` once the worker has ended.
    bell: Option<B>,
}

/// What remains for a sender to do after [`Inbox::post`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Posted {
    /// Nothing: the worker is awake and will look.
    Awake,
    /// Wake the worker, by a message of the sender's ring or by [`Inbox::ring_bell`].
    MustWake,
}

impl<M, B: Bell> Inbox<M, B> {
    pub(crate) fn new(bell: B) -> Inbox<M, B> {
        let state = InboxState { messages: VecDeque::new(), asleep: false, bell: Some(bell) };
        Inbox { state: Mutex::new(state), waiting: AtomicBool::new(false) }
    }

    /// Leaves a message. Returns it if the worker has ended.
    pub(crate) fn post(&self, message: M) -> Result<Posted, M> {
        let mut state = self.state.lock();
        if state.bell.is_none() {
            return Err(message);
        }
        state.messages.push_back(message);
        self.waiting.store(true, Ordering::Release);
        Ok(state.rouse())
    }

    /// Leaves a message, and wakes the worker by its bell if it sleeps. For threads without a ring.
    pub fn send(&self, message: M) -> Result<(), M> {
        match self.post(message)? {
            Posted::Awake => {}
            Posted::MustWake => self.ring_bell(),
        }
        Ok(())
    }

    /// Marks the worker awake, without a message. Returns whether it slept.
    pub(crate) fn rouse(&self) -> Posted {
        self.state.lock().rouse()
    }

    /// Whether the worker sleeps, or is about to. It may be awake when this returns.
    pub(crate) fn is_asleep(&self) -> bool {
        self.state.lock().asleep
    }

    /// Makes the worker look at its inbox, asleep or not, without a message.
    pub(crate) fn nudge(&self) {
        let mut state = self.state.lock();
        state.asleep = false;
        self.waiting.store(true, Ordering::Release);
        if let Some(bell) = &state.bell {
            bell.ring();
        }
    }

    /// Rings the bell, whether the worker sleeps or not. Does nothing if it has ended.
    pub(crate) fn ring_bell(&self) {
        let state = self.state.lock();
        if let Some(bell) = &state.bell {
            bell.ring();
        }
    }

    /// For the worker: whether a message or a nudge may have arrived.
    #[inline]
    pub(crate) fn has_messages(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// For the worker: takes all messages, in the order of arrival, in exchange for an empty queue.
    pub(crate) fn take(&self, into: &mut VecDeque<M>) {
        debug_assert!(into.is_empty(), "a message would stay in the inbox unnoticed");
        let mut state = self.state.lock();
        self.waiting.store(false, Ordering::Relaxed);
        std::mem::swap(into, &mut state.messages);
    }

    /// For the worker: marks it asleep. False, and it must not sleep, if something has arrived.
    pub(crate) fn fall_asleep(&self) -> bool {
        let mut state = self.state.lock();
        state.asleep = !self.waiting.load(Ordering::Relaxed);
        state.asleep
    }

    /// For the worker: marks it awake after a sleep.
    pub(crate) fn wake_up(&self) {
        self.state.lock().asleep = false;
    }

    /// For the worker at its end: refuses messages from now on. Returns the bell, to be dropped,
    /// and the messages that were not taken.
    pub(crate) fn close(&self) -> (Option<B>, VecDeque<M>) {
        let mut state = self.state.lock();
        (state.bell.take(), std::mem::take(&mut state.messages))
    }
}

impl<M, B> InboxState<M, B> {
    fn rouse(&mut self) -> Posted {
        if std::mem::replace(&mut self.asleep, false) { Posted::MustWake } else { Posted::Awake }
    }
}
