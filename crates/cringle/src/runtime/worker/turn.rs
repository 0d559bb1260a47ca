//! What a worker repeats: run, look, sleep. See the [module](super).

use super::{CURRENT, Worker};
use crate::driver;
use crate::runtime::fiber::{FiberRef, State, Wait};
use crate::runtime::shared::Mail;
use crate::runtime::timers::Alarm;
use crate::trace::Cause;
use crossbeam_deque::Steal;
use std::ptr::NonNull;

/// Unstarted fibers started in one turn, at most: the kernel is looked at in between.
const STARTS_PER_TURN: usize = 64;

impl Worker {
    /// Works until the runtime has ended.
    pub(in crate::runtime) fn run(&self) {
        #[cfg(feature = "tracing")]
        self.leave_outer_spans();
        CURRENT.set(Some(NonNull::from(self)));
        self.events.began();
        self.me().roster.open(&self.running);
        self.mailbox().set_ring(self.driver.borrow().ring_fd());
        self.see_state();
        while !self.stopped.get() {
            self.record_turn();
            let mut next = self.ready.take_all();
            while let Some(fiber) = next {
                next = fiber.unlink();
                self.more_to_run.set(next.is_some());
                if let Some(next) = next {
                    next.fetch();
                }
                self.resume(fiber);
                if self.runs_alone.get().is_some() {
                    next = self.run_alone(next);
                }
            }
            self.running.set(None);
            if !self.unstarted.is_empty() {
                self.start_some();
            }
            self.look();
        }
        self.driver.borrow_mut().flush();
        self.events.leave_trace();
        CURRENT.set(None);
        self.me().roster.close();
        #[cfg(feature = "tracing")]
        self.enter_outer_spans_again();
        if let Some(watch) = self.watches_stubborn.take() {
            self.take_back_timer(watch);
        }
        self.end_retries();
        debug_assert_eq!(self.table.borrow().occupied, 0, "a fiber outlived its worker");
        debug_assert!(self.timers.borrow().are_taken_back(), "a timer outlived its fiber");
    }

    #[inline(always)]
    pub(super) fn resume(&self, fiber: FiberRef) {
        self.running.set(Some(fiber));
        self.events.resumed(fiber);
        let ended = fiber.resume();
        if let Some(stack) = ended {
            self.bury(fiber, stack);
        }
    }

    pub(super) fn start_some(&self) {
        for _ in 0..STARTS_PER_TURN {
            match self.unstarted.pop() {
                Some(unstarted) => self.start_or_postpone(unstarted),
                None => return,
            }
        }
    }

    #[inline]
    pub(super) fn look(&self) {
        if self.has_timers.get() {
            self.fire_timers();
        }
        if self.mailbox.inbox.has_messages() {
            self.read_mail();
        }
        let (reap, enter) = self.driver.borrow_mut().attention();
        if reap {
            self.reap();
        }
        // Before it may sleep: for those who wait for room that is there, nothing else comes.
        if (self.unwinding.get() | self.in_line.get()) > 0 {
            self.do_chores();
        }
        if enter {
            self.enter(driver::Wait::No);
            self.do_chores();
        }
        // What ends within the submitting call (a read from the page cache) is there now.
        if !self.has_work() {
            self.idle();
            self.do_chores();
        }
    }

    /// What there is rarely to do.
    #[inline]
    fn do_chores(&self) {
        if self.unwinding.get() > 0 {
            self.look_for_era();
        }
        if self.in_line.get() > 0 {
            self.grant_room();
        }
    }

    /// Takes note of what the runtime has come to.
    #[cold]
    pub(super) fn see_state(&self) {
        if self.shared.is_stopping() && self.stopping_since.get().is_none() {
            self.begin_stop();
        }
        if self.shared.is_cancelled() && !self.roots_cancelled.replace(true) {
            self.cancel_roots();
        }
        self.stopped.set(self.shared.is_stopped());
    }

    #[inline]
    pub(super) fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.unstarted.is_empty()
    }

    pub(super) fn enter(&self, wait: driver::Wait) {
        self.enter_driver(wait);
        self.reap();
        #[cfg(feature = "sim")]
        self.heed_simulation();
    }

    pub(super) fn enter_driver(&self, wait: driver::Wait) {
        self.events.entering(&self.driver, wait);
        self.driver.borrow_mut().enter(wait);
        self.events.entered(&self.driver);
    }

    /// Makes ready whose last completion is in the queue.
    #[inline]
    pub(super) fn reap(&self) {
        self.events.reaping();
        let mut driver = self.driver.borrow_mut();
        driver.reap(|token| {
            let fiber = FiberRef::from_token(token);
            // While it still gives ops to the driver, or waits for room to, this is not its cue.
            if fiber.state() == State::Waiting(Wait::Ops) {
                self.events.completed(fiber);
                fiber.set_state(State::Runnable);
                self.ready.push(fiber);
            }
        });
        while let Some(worker) = driver.take_undelivered() {
            self.shared.peers[worker as usize].mailbox.inbox.ring_bell();
        }
    }

    pub(super) fn fire_timers(&self) {
        let now = self.now();
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            if due.is_some() {
                self.events.timer_fired();
            }
            match due {
                Some(Alarm::Wake(fiber)) => self.make_ready(fiber, Cause::Timer),
                Some(Alarm::Expire(fiber, region)) => self.expire(fiber, region),
                Some(Alarm::GiveUp(fiber)) => self.give_up_ops(fiber),
                Some(Alarm::ReportStubborn) => self.report_stubborn(),
                Some(Alarm::RetryStarts) => self.retry_starts(),
                None => break,
            }
        }
        self.has_timers.set(!self.timers.borrow().is_empty());
    }

    #[cold]
    pub(super) fn read_mail(&self) {
        let mut mail = self.mail.take();
        self.mailbox().inbox.take(&mut mail);
        self.events.took_mail(mail.len());
        mail.drain(..).for_each(|message| self.read(message));
        self.mail.replace(mail);
        self.see_state();
    }

    /// Does what a message says.
    pub(in crate::runtime) fn read(&self, message: Mail) {
        match message {
            Mail::Wake(id) => {
                self.events.read_wake(id);
                self.wake(id);
            }
            Mail::Start(unstarted) => self.start_or_postpone(unstarted),
            Mail::Cancel(id, reason) => self.cancel_fiber(id, reason),
            Mail::CancelScope(id, members, reason) => self.cancel_in_scope(id, &members, reason),
            Mail::TrimStacks => _ = self.stacks.borrow_mut().trim(0),
            Mail::Ask(question) => question.answer(self),
        }
    }

    /// Sleeps in the kernel, unless there is something to do after all.
    pub(super) fn idle(&self) {
        if self.shared.try_finish() {
            return self.see_state();
        }
        if self.starts_are_hopeless() {
            return self.fail_starts();
        }
        if self.workers() > 1 && self.steal() {
            return;
        }
        let begun = self.now();
        if self.workers() > 1 && self.linger(begun) {
            return;
        }
        self.shared.count_idle();
        // From here on a fiber that is made elsewhere, and a message, wake this worker.
        let asleep = self.mailbox().inbox.fall_asleep();
        if asleep && !self.shared.has_loot(self.index) {
            self.events.slept();
            let deadline = self.timers.borrow().next();
            self.enter(driver::Wait::Until(deadline));
            self.patience.learn(self.now() - begun, self.mailbox().inbox.has_messages());
        }
        self.mailbox().inbox.wake_up();
        self.shared.count_busy();
        // A message that came with the wake-up is read now, not a turn later.
        if self.mailbox().inbox.has_messages() {
            self.read_mail();
        }
    }

    pub(super) fn steal(&self) -> bool {
        let count = self.workers();
        for step in 1..count {
            let victim = &self.shared.peers[(self.index as usize + step) % count];
            loop {
                match victim.stealer.steal() {
                    Steal::Success(unstarted) => {
                        self.events.stole();
                        self.start_stolen(unstarted, &victim.mailbox);
                        return true;
                    }
                    Steal::Retry => {}
                    Steal::Empty => break,
                }
            }
        }
        false
    }
}
