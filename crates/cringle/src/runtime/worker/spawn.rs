//! Making fibers, and what is left to do when one has ended.

use super::Worker;
use crate::runtime::fiber::FiberRef;
use crate::runtime::shared::{Mail, Unstarted};
use crate::runtime::stack::Stack;
use corosensei::Coroutine;
use std::io;

/// A body up to this size is moved onto its fiber's stack; `corosensei` refuses more than 1024 bytes,
/// and a larger one is boxed.
const MOVED_BODY_BYTES: usize = 512;

impl Worker {
    /// Starts a fiber here and now: it is appended to the ready list.
    ///
    /// # Safety
    ///
    /// I2: what `body` borrows outlives the fiber (the caller waits for its end).
    pub(crate) unsafe fn start<B: FnOnce()>(
        &self,
        stack_bytes: usize,
        body: B,
    ) -> io::Result<FiberRef> {
        if size_of::<B>() > MOVED_BODY_BYTES {
            let body: Box<dyn FnOnce() + '_> = Box::new(body);
            // SAFETY: handed on to the caller.
            return unsafe { self.start(stack_bytes, body) };
        }
        let stack = self.stacks.borrow_mut().take(stack_bytes)?;
        self.me().made.bump();
        // SAFETY: handed on to the caller.
        let fiber = unsafe { self.start_on(stack, body) };
        self.events.started(fiber, self.alive.get(), 0, true);
        Ok(fiber)
    }

    /// # Safety
    ///
    /// As for [`Worker::start`].
    pub(super) unsafe fn start_on(&self, stack: Stack, body: impl FnOnce()) -> FiberRef {
        let fiber = self.table.borrow_mut().vacancy();
        self.alive.set(self.alive.get() + 1);
        let bounds = stack.bounds();
        // SAFETY: I2. The caller makes sure that what the body borrows outlives it.
        let coroutine = unsafe {
            Coroutine::with_stack_unchecked(stack, move |yielder, ()| {
                fiber.entered(yielder);
                body();
            })
        };
        fiber.occupy(coroutine, bounds);
        self.ready.push(fiber);
        fiber
    }

    pub(super) fn start_or_postpone(&self, unstarted: Unstarted) {
        let stack = self.stacks.borrow_mut().take(unstarted.stack_bytes);
        match stack {
            Ok(stack) => self.start_unstarted(unstarted, stack, None),
            Err(e) => self.postpone(unstarted, e),
        }
    }

    /// Starts a fiber on this stack: to run, or to fail by this error.
    pub(super) fn start_unstarted(
        &self,
        unstarted: Unstarted,
        stack: Stack,
        error: Option<io::Error>,
    ) {
        let Unstarted { body, origin, .. } = unstarted;
        let body = move || match error {
            None => body.run(),
            Some(e) => body.fail(e),
        };
        // SAFETY: I2. The body of an unstarted fiber borrows nothing that its maker does not keep until
        // it has ended.
        let fiber = unsafe { self.start_on(stack, body) };
        self.events.started(fiber, self.alive.get(), origin, false);
    }

    /// A fiber has ended, and its stack is free.
    pub(super) fn bury(&self, fiber: FiberRef, stack: Stack) {
        self.events.ended(fiber);
        // Those that it has forgotten to leave.
        #[cfg(feature = "tracing")]
        {
            self.running.set(None);
            drop(super::spans::Spans::leave());
        }
        fiber.vacate();
        self.alive.set(self.alive.get() - 1);
        self.stacks.borrow_mut().give_back(stack);
        self.table.borrow_mut().release(fiber.id().index);
        self.me().ended.bump();
        if self.has_postponed() {
            self.start_postponed();
        }
    }

    /// Makes a fiber that any worker may start.
    pub(crate) fn make_unstarted(&self, mut unstarted: Unstarted) {
        self.events.spawned(&mut unstarted);
        self.me().made.bump();
        self.unstarted.push(unstarted);
        if self.workers() > 1
            && let Some(thief) = self.shared.thief_to_wake(self.index)
        {
            self.wake_peer(thief);
        }
    }

    /// Makes a fiber that the given worker starts.
    pub(crate) fn make_placed(&self, worker: usize, mut unstarted: Unstarted) {
        self.events.spawned(&mut unstarted);
        self.me().made.bump();
        let mailbox = &self.shared.peers[worker].mailbox;
        match self.lives_at(mailbox) {
            true => self.start_or_postpone(unstarted),
            false => self.mail(mailbox, Mail::Start(unstarted)),
        }
    }
}
