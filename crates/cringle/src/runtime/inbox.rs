//! Messages to a worker from other threads, and how it is woken.
//!
//! # No wake-up is lost
//!
//! Everything happens under one short lock. A sender pushes and, *in the same critical section*,
//! looks whether the worker sleeps; the worker, before it sleeps, looks for messages and declares
//! that it sleeps in one critical section. Whichever comes second sees the first:
//!
//! - sender first: the worker finds the message and does not sleep;
//! - worker first: the sender finds it asleep, clears the mark (so that one wake-up is sent, not
//!   one for each message) and sends a wake-up, which ends the sleep whenever it arrives, because
//!   the ring's wait ends for a completion that is already there.
//!
//! The descriptor that foreign threads signal is closed under the same lock, and `closed` is
//! checked under it, so a handle that outlives `run` can never write to a number that now means
//! another file (**I9**). `loom_tests` explores the interleavings of this file.

use super::sync::{AtomicBool, Mutex, Ordering};
use std::collections::VecDeque;

/// What it takes to wake a sleeping worker from a thread that has no ring. (A trait so that the
/// model can replace the descriptor.)
pub(crate) trait Bell {
    fn ring(&self);
}

pub(crate) struct Inbox<M, B> {
    state: Mutex<State<M, B>>,
    /// A hint that spares the worker the lock when nothing has come.
    waiting: AtomicBool,
}

struct State<M, B> {
    messages: VecDeque<M>,
    asleep: bool,
    /// `None` once the worker is gone.
    bell: Option<B>,
}

/// What a sender has to do after [`Inbox::post`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Posted {
    /// The worker is awake and will look.
    Awake,
    /// The worker sleeps and the sender must wake it: by a message of its own ring, or by
    /// [`Inbox::ring_bell`].
    MustWake,
}

impl<M, B: Bell> Inbox<M, B> {
    pub(crate) fn new(bell: B) -> Inbox<M, B> {
        let state = State { messages: VecDeque::new(), asleep: false, bell: Some(bell) };
        Inbox { state: Mutex::new(state), waiting: AtomicBool::new(false) }
    }

    /// Leaves a message. Gives it back if the worker is gone.
    pub(crate) fn post(&self, message: M) -> Result<Posted, M> {
        let mut state = self.state.lock().expect("no code panics under this lock");
        if state.bell.is_none() {
            return Err(message);
        }
        state.messages.push_back(message);
        self.waiting.store(true, Ordering::Release);
        Ok(state.rouse())
    }

    /// Leaves a message and wakes the worker by its bell: what a thread without a ring does.
    pub(crate) fn send(&self, message: M) -> Result<(), M> {
        match self.post(message)? {
            Posted::Awake => {}
            Posted::MustWake => self.ring_bell(),
        }
        Ok(())
    }

    /// Marks the worker awake, without a message. Says whether it slept.
    pub(crate) fn rouse(&self) -> Posted {
        self.state.lock().expect("no code panics under this lock").rouse()
    }

    /// Has the worker look, asleep or not, though there is no message.
    pub(crate) fn nudge(&self) {
        let mut state = self.state.lock().expect("no code panics under this lock");
        state.asleep = false;
        self.waiting.store(true, Ordering::Release);
        if let Some(bell) = &state.bell {
            bell.ring();
        }
    }

    /// Wakes the worker, asleep or not. Nothing happens if it is gone.
    pub(crate) fn ring_bell(&self) {
        let state = self.state.lock().expect("no code panics under this lock");
        if let Some(bell) = &state.bell {
            bell.ring();
        }
    }

    /// For the worker: whether a message may be there.
    #[inline]
    pub(crate) fn has_messages(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// For the worker: takes all messages, in the order they came, in exchange for an empty queue.
    pub(crate) fn take(&self, into: &mut VecDeque<M>) {
        debug_assert!(into.is_empty());
        let mut state = self.state.lock().expect("no code panics under this lock");
        self.waiting.store(false, Ordering::Relaxed);
        std::mem::swap(into, &mut state.messages);
    }

    /// For the worker: declares that it will sleep. False (and it must not) if there is something to
    /// look at.
    pub(crate) fn fall_asleep(&self) -> bool {
        let mut state = self.state.lock().expect("no code panics under this lock");
        state.asleep = !self.waiting.load(Ordering::Relaxed);
        state.asleep
    }

    /// For the worker: it is awake again, woken or not.
    pub(crate) fn wake_up(&self) {
        self.state.lock().expect("no code panics under this lock").asleep = false;
    }

    /// For the worker, at its end: no message is taken any more, the bell is given back to be
    /// dropped, and what nobody took is handed out.
    pub(crate) fn close(&self) -> (Option<B>, VecDeque<M>) {
        let mut state = self.state.lock().expect("no code panics under this lock");
        (state.bell.take(), std::mem::take(&mut state.messages))
    }
}

impl<M, B> State<M, B> {
    fn rouse(&mut self) -> Posted {
        match std::mem::replace(&mut self.asleep, false) {
            true => Posted::MustWake,
            false => Posted::Awake,
        }
    }
}
