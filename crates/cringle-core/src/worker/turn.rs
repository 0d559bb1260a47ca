//! The turn: run the ready fibers, look, sleep. See the [module](super).

use super::{Worker, current::WORKER};
use crate::fiber::{FiberRef, RunState, Wait};
use crate::shared::Mail;
use cringle_driver as driver;
use cringle_tls::Switch;
use std::time::Instant;

/// What [`Worker::run_fibers`] has done.
struct Ran {
    last: FiberRef,
    has_ended: bool,
    rest: Option<FiberRef>,
}

impl Worker {
    /// Runs until the runtime has ended.
    pub fn run(&self) {
        self.begin();
        self.take_turns();
        self.end();
    }

    /// Between two fibers this function is on the block of the first one: see
    /// [`run_fibers`](Self::run_fibers), which is inlined because its return would be mispredicted.
    /// So all that may touch a thread-local is in functions that are not inlined, and the compiler
    /// finds nothing here that it could move there (**I14**).
    #[inline(never)]
    fn take_turns(&self) {
        while !self.lifecycle.is_stopped() {
            let mut next = self.begin_turn();
            while let Some(fiber) = next {
                next = fiber.unlink();
                self.note_next(next);
                next = self.resume(fiber, next);
                if self.schedule.alone().is_some() {
                    next = self.run_alone(next);
                }
                if next.is_none() && self.moves.has_offered() {
                    next = self.take_back();
                }
            }
            self.end_turn();
        }
    }

    /// Takes the fibers of a turn: those that are ready now, less those that are given away.
    #[inline(never)]
    fn begin_turn(&self) -> Option<FiberRef> {
        self.count_turn();
        let next = self.schedule.ready().take_all();
        if next.is_some() {
            self.trim.note_run();
        }
        if self.moves.may_happen() | self.moves.are_drawn() { self.share(next) } else { next }
    }

    /// Takes a fiber back that was offered to other workers in this turn.
    #[inline(never)]
    fn take_back(&self) -> Option<FiberRef> {
        // Unpacking is the scheduler's work, which must not find a fiber (I14).
        self.foreground.set(None);
        self.simulation(|sim| sim.hand_over());
        self.moves.take_back().map(|traveller| self.arrive(traveller))
    }

    #[inline(never)]
    fn end_turn(&self) {
        self.foreground.set(None);
        if self.admission.has_unstarted() {
            self.simulation(|sim| sim.hand_over());
            self.start_some();
        }
        self.look();
    }

    #[inline(always)]
    fn count_turn(&self) {
        if self.events.trace_has_changed() {
            self.events.change_trace(self.index, &self.driver, || self.table.fibers());
        }
        if self.events.count_turn() {
            self.events.read_clock(&self.driver);
            if self.trim.may_find_some() {
                self.search_idle_stacks(self.now());
            }
        }
    }

    /// Searches for stacks that give pages back. Returns when it is due again.
    fn search_idle_stacks(&self, now: Instant) -> Option<Instant> {
        let clock_ns = self.events.clock_ns();
        self.trim.search(now, clock_ns, &self.table, &self.foreground, &self.admission)
    }

    fn begin(&self) {
        debug_assert!(WORKER.get().is_none(), "a thread is one worker at a time");
        self.simulation(|sim| sim.wait_for_turn());
        self.outer_spans.leave();
        self.enter_block();
        self.events.began();
        self.me().roster.open(self.foreground.running());
        self.mailbox().set_ring(self.driver.borrow().ring_fd());
        self.follow_state();
    }

    fn end(&self) {
        self.driver.borrow_mut().flush();
        self.events.leave_trace();
        Worker::leave_thread();
        self.me().roster.close();
        self.outer_spans.enter_again();
        debug_assert_eq!(self.table.occupied(), 0, "I2: a fiber outlived its worker");
        debug_assert!(self.postponed.is_empty(), "I2: a fiber was not started");
        debug_assert!(self.alarms.are_taken_back(), "a timer outlived its fiber");
        debug_assert!(self.room.is_empty(), "a fiber outlived its wait for room");
        self.simulation(|sim| sim.leave());
    }

    /// Resumes a fiber, and then the fibers of `rest` until the scheduler has something to do.
    /// Returns those that are left.
    #[inline(always)]
    pub(super) fn resume(&self, fiber: FiberRef, rest: Option<FiberRef>) -> Option<FiberRef> {
        if self.families.hold_back(fiber) {
            return rest;
        }
        self.events.resumed(fiber);
        let ran = self.run_fibers(fiber, rest);
        if ran.has_ended {
            self.bury(ran.last);
        } else if self.moves.measure_runs() {
            self.moves.note_run(ran.last);
        }
        if self.families.any_is_held() {
            self.give_to_host(ran.last);
        }
        ran.rest
    }

    /// Switches from fiber to fiber, each of which suspends itself. Between two of them it is on
    /// the block of the fiber that ran last, because a write of the thread pointer takes longer
    /// than the rest of a switch, and touches no thread-local (**I14**). No other worker can take
    /// that fiber meanwhile: nothing is offered, and no message read, between two fibers.
    #[inline(always)]
    fn run_fibers(&self, mut fiber: FiberRef, mut rest: Option<FiberRef>) -> Ran {
        let mut switch = Switch::begin();
        loop {
            let is_host = || fiber.as_transit().is_at(self.index as usize);
            debug_assert!(is_host(), "I3: only its host resumes a fiber");
            self.foreground.set(Some(fiber));
            // SAFETY: I3, I14. The scheduler resumes its own fiber, on no other block than `switch`
            // knows.
            let has_ended = unsafe { fiber.resume(&mut switch) };
            if has_ended || self.has_to_follow() {
                return Ran { last: fiber, has_ended, rest };
            }
            let Some(next) = rest else { return Ran { last: fiber, has_ended, rest } };
            rest = next.unlink();
            self.note_next(rest);
            fiber = next;
        }
    }

    /// Whether the scheduler has something to do between two fibers.
    #[inline(always)]
    fn has_to_follow(&self) -> bool {
        self.events.is_traced()
            | self.moves.measure_runs()
            | self.families.any_is_held()
            | self.schedule.alone().is_some()
    }

    /// Notes whether fibers of this turn follow the one that is resumed now.
    #[inline(always)]
    fn note_next(&self, next: Option<FiberRef>) {
        self.schedule.set_more_in_turn(next.is_some() || self.moves.has_offered());
        if let Some(next) = next {
            next.fetch();
        }
    }

    /// Handles everything that does not come from this worker's fibers: timers, messages,
    /// completions. Sleeps if nothing is left to do.
    #[inline]
    pub(super) fn look(&self) {
        self.look_for_cancel();
        let (reap, enter) = self.driver.borrow_mut().attention();
        if reap {
            self.reap();
        }
        // Before it may sleep: no event follows for fibers that wait for room which is free
        // already.
        if (self.families.unwinding() | self.room.len()) > 0 {
            self.do_chores();
        }
        if enter {
            self.enter(driver::Wait::No);
            self.do_chores();
        }
        // An op that ends within the submitting call (a read from the page cache) has made its
        // fiber ready by now.
        if !self.has_work() {
            self.idle();
            self.do_chores();
        }
    }

    /// Handles due timers and received messages, which may cancel the caller. For a fiber that
    /// computes for long and thereby keeps its worker from doing so.
    #[inline]
    pub fn look_for_cancel(&self) {
        if self.alarms.may_be_set() {
            self.fire_timers();
        }
        if self.mailbox.inbox.has_messages() {
            self.read_mail();
        }
    }

    /// Does the rare work.
    #[inline]
    fn do_chores(&self) {
        if self.families.unwinding() > 0 {
            self.families.check_era();
        }
        if !self.room.is_empty() {
            self.grant_room();
        }
    }

    #[inline]
    pub(super) fn has_work(&self) -> bool {
        !self.schedule.ready().is_empty() || self.admission.has_unstarted()
    }

    fn enter(&self, wait: driver::Wait) {
        self.enter_driver(wait);
        self.reap();
        if let Some(reason) = self.simulation(|sim| sim.take_halt()).flatten() {
            self.end_simulation(reason);
        }
    }

    pub(super) fn enter_driver(&self, wait: driver::Wait) {
        self.events.entering(&self.driver, wait);
        self.driver.borrow_mut().enter(wait);
        self.events.entered(&self.driver);
    }

    /// Takes all completions, and makes the fibers ready whose last one is among them (**I1**).
    #[inline]
    fn reap(&self) {
        self.events.reaping();
        let mut driver = self.driver.borrow_mut();
        driver.reap(|token| {
            let fiber = FiberRef::from_token(token);
            // A fiber that still pushes ops of a batch, or waits for room to, looks itself when it
            // has pushed the last.
            if fiber.state() == RunState::Waiting(Wait::Ops) {
                self.events.completed(fiber);
                fiber.set_state(RunState::Runnable);
                self.schedule.ready().push(fiber);
            }
        });
        while let Some(worker) = driver.take_undelivered() {
            self.shared.peers[worker as usize].mailbox.inbox.ring_bell();
        }
    }

    /// Handles all messages, and then the state of the runtime, whose changes nudge the inbox.
    #[cold]
    pub(super) fn read_mail(&self) {
        let mut mail = self.mail.take();
        self.mailbox().inbox.take(&mut mail);
        self.events.took_mail(mail.len());
        mail.drain(..).for_each(|message| self.handle(message));
        self.mail.replace(mail);
        self.follow_state();
    }

    pub(crate) fn handle(&self, message: Mail) {
        match message {
            Mail::Wake(id, by) => {
                self.events.read_wake(id);
                self.wake_from(id, by);
            }
            Mail::Start(unstarted) => self.start_or_postpone(unstarted),
            Mail::Cancel(id, reason) => self.cancel_fiber(id, reason),
            Mail::CancelScope(id, members, reason) => self.cancel_in_scope(id, &members, reason),
            Mail::CancelPoint(id) => self.cancel_point(id),
            Mail::TrimStacks => _ = self.admission.stacks().trim(0),
            Mail::Ask(question) => question.answer(self),
            Mail::Arrive(traveller) => self.receive(traveller),
            Mail::Bury(husk) => self.release(husk),
        }
    }

    /// Finds other work, or sleeps in the kernel until some arrives.
    fn idle(&self) {
        debug_assert!(self.foreground.get().is_none(), "the worker sleeps while a fiber runs");
        self.moves.end_turns();
        // An abandoned start rings each bell once, and this turn may have seen that already.
        if self.lifecycle.is_stopped() || self.shared.try_finish() {
            return self.follow_state();
        }
        let has_others = self.shared.workers() > 1;
        // Fibers wait for a stack, and none will become free.
        if !has_others
            && self.admission.waiting_for_fibers() == self.table.occupied()
            && self.postponed.any_wait()
        {
            return self.start_postponed(true);
        }
        if has_others && self.steal() {
            return;
        }
        let idle_since = self.now();
        let taken = self.moves.take_offered(idle_since);
        if !taken.is_empty() {
            return taken.into_iter().for_each(|traveller| self.receive(traveller));
        }
        if has_others && !self.moves.are_drawn() && self.spin(idle_since) {
            return;
        }
        let trims_at = self.search_idle_stacks(idle_since);
        self.shared.count_idle();
        // From here on, a message and a fiber that is made elsewhere wake this worker.
        let is_asleep = self.mailbox().inbox.fall_asleep();
        if is_asleep && !self.shared.has_work_elsewhere(self.index) {
            self.events.slept();
            let deadline = [self.alarms.next(), self.moves.next_look(idle_since), trims_at];
            let deadline = deadline.into_iter().flatten().min();
            self.enter(driver::Wait::Until(deadline));
            self.spin_policy.learn(self.now() - idle_since, self.mailbox().inbox.has_messages());
        }
        self.mailbox().inbox.wake_up();
        self.shared.count_busy();
        // Reads the message that has woken it now, not a turn later.
        if self.mailbox().inbox.has_messages() {
            self.read_mail();
        }
    }
}
