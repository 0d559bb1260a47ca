//! A worker: an OS thread with a ring, and the turn it repeats until the runtime ends.
//!
//! # The turn
//!
//! 1. Every fiber that is ready now runs once, first come, first served; then some unstarted
//!    fibers are started.
//! 2. The worker *looks*, however busy the fibers are: timers that are due, completions that are
//!    in the queue, messages from other threads. It enters the kernel when there is something to
//!    submit, or when the ring says that work waits for it.
//! 3. When nothing is ready it steals an unstarted fiber, or sleeps in the kernel until the next
//!    completion, message or timer: submitting and sleeping are one system call.
//!
//! A fiber runs on the worker that started it, and only while it is suspended is it resumed
//! (**I3**). No borrow of the worker's cells is held while a fiber runs.
//!
//! # Why so much is `inline(always)`
//!
//! A processor predicts a return by the call it remembers last. A switch of stacks pairs the
//! scheduler's call with the fiber's suspension; every return in between, from a function that was
//! called before the switch, is predicted wrong, at some 20 cycles each. So what lies between a
//! caller's own code and the switch is inlined into one function, and what is rare is kept out of
//! it (`cold`).

use super::cancelled;
use super::fiber::{Fiber, FiberId, FiberRef, Row, State, Wait, WaitedOps};
use super::inbox::Posted;
use super::shared::{Mail, MailBox, Peer, Shared, Unstarted};
use super::stack::{Stack, StackPool};
use super::timers::{TimerId, Timers};
use super::waker::Waker;
use crate::driver::{self, Completion, Op, OpSlot, Uring, Waiter};
use corosensei::Coroutine;
use crossbeam_deque::{Steal, Worker as Deque};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Unstarted fibers started in one turn, at most: the kernel is looked at in between.
const STARTS_PER_TURN: usize = 64;
/// Calls refused to a cancelled fiber before it is unwound.
const MAX_REFUSALS: u32 = 1000;
/// A cancelled op that the kernel has not given up after this is reported.
const STUBBORN_AFTER: Duration = Duration::from_secs(5);

thread_local! {
    static CURRENT: Cell<Option<NonNull<Worker>>> = const { Cell::new(None) };
}

/// See the module.
pub(crate) struct Worker {
    index: u32,
    shared: Arc<Shared>,
    mailbox: Arc<MailBox>,
    driver: RefCell<Uring>,
    /// The fiber that runs now.
    running: Cell<Option<FiberRef>>,
    ready: Row,
    /// Others will run after it in this turn.
    more_to_run: Cell<bool>,
    /// Fibers made here and not started; other workers may take them.
    unstarted: Deque<Unstarted>,
    /// Fibers whose stack could not be mapped: tried again when one ends.
    postponed: RefCell<VecDeque<Unstarted>>,
    table: RefCell<Table>,
    stacks: RefCell<StackPool>,
    timers: RefCell<Timers>,
    /// Whether any timer is set: what a turn asks without a borrow.
    has_timers: Cell<bool>,
    /// Who waits for room among the ops in flight, in order.
    room_queue: RefCell<VecDeque<FiberRef>>,
    /// Places given to fibers of that queue and not used yet.
    granted: Cell<u32>,
    /// Fibers in that queue or with such a place: nobody overtakes them.
    in_line: Cell<u32>,
    /// Fibers that were suspended while they unwound, and the thread itself if it unwinds.
    unwinding: Cell<u32>,
    /// Some fiber was suspended while it was not certain whether it unwound: another one did.
    blurred: Cell<bool>,
    /// It has seen that the runtime ends, at this time.
    stopping_since: Cell<Option<Instant>>,
    /// It has seen that the runtime has ended.
    stopped: Cell<bool>,
    reported: Cell<bool>,
    /// Started fibers that have not ended.
    alive: Cell<u32>,
    /// Fibers that wait for others of this runtime to end.
    waiting_for_fibers: Cell<u32>,
}

/// The blocks of this worker's fibers.
#[derive(Default)]
struct Table {
    blocks: Vec<NonNull<Fiber>>,
    vacant: Vec<u32>,
    occupied: usize,
}

/// The worker of the calling thread, for code on one of its fibers. It cannot leave the thread,
/// and fibers never do, so it may be kept over a suspension.
#[derive(Clone, Copy)]
pub(crate) struct Here(NonNull<Worker>);

impl std::ops::Deref for Here {
    type Target = Worker;

    #[inline]
    fn deref(&self) -> &Worker {
        // SAFETY: I2, I3. The worker outlives its fibers, and the type is not Send.
        unsafe { self.0.as_ref() }
    }
}

impl Worker {
    pub(super) fn new(
        index: u32,
        shared: Arc<Shared>,
        driver: Uring,
        unstarted: Deque<Unstarted>,
    ) -> Worker {
        Worker {
            index,
            mailbox: Arc::clone(&shared.peers[index as usize].mailbox),
            shared,
            driver: RefCell::new(driver),
            running: Cell::new(None),
            ready: Row::default(),
            more_to_run: Cell::new(false),
            unstarted,
            postponed: RefCell::default(),
            table: RefCell::default(),
            stacks: RefCell::default(),
            timers: RefCell::default(),
            has_timers: Cell::new(false),
            room_queue: RefCell::default(),
            granted: Cell::new(0),
            in_line: Cell::new(0),
            // A `run` in a destructor: std's count says nothing about the fibers here.
            unwinding: Cell::new(u32::from(std::thread::panicking())),
            blurred: Cell::new(false),
            stopping_since: Cell::new(None),
            stopped: Cell::new(false),
            reported: Cell::new(false),
            alive: Cell::new(0),
            waiting_for_fibers: Cell::new(0),
        }
    }

    /// The worker of this thread, if it is one.
    #[inline]
    pub(crate) fn here() -> Option<Here> {
        CURRENT.get().map(Here)
    }

    /// The worker of this thread and the fiber that runs on it: what every call of the library asks
    /// first. `None` outside of `run`, where the calls are the plain blocking ones.
    #[inline]
    pub(crate) fn current() -> Option<(Here, FiberRef)> {
        let here = Worker::here()?;
        Some((here, here.running.get()?))
    }

    pub(crate) fn with<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
        let here = Worker::here();
        f(here.as_deref())
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn workers(&self) -> usize {
        self.shared.peers.len()
    }

    /// The ring. Borrowed for short: never while a fiber runs or is suspended.
    pub(crate) fn driver(&self) -> &RefCell<Uring> {
        &self.driver
    }

    fn me(&self) -> &Peer {
        &self.shared.peers[self.index as usize]
    }

    pub(crate) fn mailbox(&self) -> &Arc<MailBox> {
        &self.mailbox
    }

    pub(crate) fn lives_at(&self, mailbox: &Arc<MailBox>) -> bool {
        Arc::ptr_eq(self.mailbox(), mailbox)
    }

    /// What ends a wait of this fiber, from anywhere.
    pub(crate) fn waker(&self, fiber: FiberRef) -> Waker {
        Waker::Fiber { home: Arc::clone(self.mailbox()), id: fiber.id() }
    }

    // ----- the turn -----

    /// Works until the runtime has ended.
    pub(super) fn run(&self) {
        CURRENT.set(Some(NonNull::from(self)));
        self.mailbox().set_ring(self.driver.borrow().ring_fd());
        self.see_state();
        while !self.stopped.get() {
            let mut next = self.ready.take_all();
            while let Some(fiber) = next {
                next = fiber.unlink();
                self.more_to_run.set(next.is_some());
                self.resume(fiber);
            }
            self.running.set(None);
            if !self.unstarted.is_empty() {
                self.start_some();
            }
            self.look();
        }
        self.driver.borrow_mut().flush();
        CURRENT.set(None);
        debug_assert_eq!(self.table.borrow().occupied, 0, "a fiber outlived its worker");
    }

    #[inline(always)]
    fn resume(&self, fiber: FiberRef) {
        self.running.set(Some(fiber));
        let ended = fiber.resume();
        if let Some(stack) = ended {
            self.bury(fiber, stack);
        }
    }

    fn start_some(&self) {
        for _ in 0..STARTS_PER_TURN {
            match self.unstarted.pop() {
                Some(unstarted) => self.start_or_postpone(unstarted),
                None => return,
            }
        }
    }

    #[inline]
    fn look(&self) {
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
        if self.blurred.get() && !std::thread::panicking() {
            self.clear_marks();
        }
        // Before it may sleep: for those who wait for room that is there, nothing else comes.
        if self.in_line.get() > 0 {
            self.grant_room();
        }
        if !self.has_work() {
            self.idle();
        } else if enter {
            self.enter(driver::Wait::No);
        }
        if self.in_line.get() > 0 {
            self.grant_room();
        }
    }

    /// Takes note of what the runtime has come to.
    #[cold]
    fn see_state(&self) {
        if self.shared.is_stopping() && self.stopping_since.get().is_none() {
            self.begin_stop();
        }
        self.stopped.set(self.shared.is_stopped());
    }

    #[inline]
    fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.unstarted.is_empty()
    }

    fn enter(&self, wait: driver::Wait) {
        self.driver.borrow_mut().enter(wait);
        self.reap();
    }

    /// Makes ready whose last completion is in the queue.
    #[inline]
    fn reap(&self) {
        let mut driver = self.driver.borrow_mut();
        driver.reap(|token| {
            let fiber = FiberRef::from_token(token);
            // While it still gives ops to the driver, or waits for room to, this is not its cue.
            if fiber.state() == State::Waiting(Wait::Ops) {
                fiber.set_state(State::Runnable);
                self.ready.push(fiber);
            }
        });
        while let Some(worker) = driver.take_undelivered() {
            self.shared.peers[worker as usize].mailbox.inbox.ring_bell();
        }
    }

    fn fire_timers(&self) {
        let mut timers = self.timers.borrow_mut();
        let now = Instant::now();
        while let Some(fiber) = timers.pop_due(now) {
            self.make_ready(fiber);
        }
        self.has_timers.set(!timers.is_empty());
    }

    #[cold]
    fn read_mail(&self) {
        let mut mail = VecDeque::new();
        self.mailbox().inbox.take(&mut mail);
        for message in mail {
            match message {
                Mail::Wake(id) => self.wake(id),
                Mail::Start(unstarted) => self.start_or_postpone(unstarted),
            }
        }
        self.see_state();
    }

    /// Sleeps in the kernel, unless there is something to do after all.
    fn idle(&self) {
        if self.shared.try_finish() {
            return self.see_state();
        }
        if self.workers() > 1 && self.steal() {
            return;
        }
        self.shared.count_idle();
        // From here on a fiber that is made elsewhere, and a message, wake this worker.
        let asleep = self.mailbox().inbox.fall_asleep();
        if asleep && !self.shared.has_loot(self.index) {
            let next_timer = self.timers.borrow().next();
            let deadline = self.report_stubborn_at(next_timer);
            self.enter(driver::Wait::Until(deadline));
        }
        self.mailbox().inbox.wake_up();
        self.shared.count_busy();
        // A message that came with the wake-up is read now, not a turn later.
        if self.mailbox().inbox.has_messages() {
            self.read_mail();
        }
    }

    fn steal(&self) -> bool {
        let count = self.workers();
        for step in 1..count {
            let victim = &self.shared.peers[(self.index as usize + step) % count];
            loop {
                match victim.stealer.steal() {
                    Steal::Success(unstarted) => {
                        self.start_or_postpone(unstarted);
                        return true;
                    }
                    Steal::Retry => {}
                    Steal::Empty => break,
                }
            }
        }
        false
    }

    // ----- making and ending fibers -----

    /// Starts a fiber here and now: it is appended to the ready list.
    ///
    /// # Safety
    ///
    /// I2: what `body` borrows outlives the fiber (the caller waits for its end).
    pub(crate) unsafe fn start(
        &self,
        stack_bytes: usize,
        body: impl FnOnce(),
    ) -> io::Result<FiberRef> {
        let stack = self.stacks.borrow_mut().take(stack_bytes)?;
        self.me().made.bump();
        // SAFETY: handed on to the caller.
        Ok(unsafe { self.start_on(stack, body) })
    }

    /// # Safety
    ///
    /// As for [`Worker::start`].
    unsafe fn start_on(&self, stack: Stack, body: impl FnOnce()) -> FiberRef {
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
        if self.stopping_since.get().is_some() {
            fiber.set_cancelled();
        }
        self.ready.push(fiber);
        fiber
    }

    fn start_or_postpone(&self, unstarted: Unstarted) {
        let stack = self.stacks.borrow_mut().take(unstarted.stack_bytes);
        match stack {
            // SAFETY: I2. The body of an unstarted fiber borrows nothing that its maker does not
            // keep until it has ended.
            Ok(stack) => drop(unsafe { self.start_on(stack, unstarted.body) }),
            // An unstarted fiber is never dropped: it waits for another one's stack.
            Err(_) if self.table.borrow().occupied > 0 => {
                self.postponed.borrow_mut().push_back(unstarted);
            }
            Err(e) => {
                eprintln!("cringle: a fiber cannot be started: {e}; aborting");
                std::process::abort();
            }
        }
    }

    /// A fiber has ended, and its stack is free.
    fn bury(&self, fiber: FiberRef, stack: Stack) {
        fiber.vacate();
        self.alive.set(self.alive.get() - 1);
        self.stacks.borrow_mut().give_back(stack);
        self.table.borrow_mut().release(fiber.id().index);
        self.me().ended.bump();
        let postponed = self.postponed.borrow_mut().pop_front();
        if let Some(unstarted) = postponed {
            self.start_or_postpone(unstarted);
        }
    }

    /// Makes a fiber that any worker may start.
    pub(crate) fn make_unstarted(&self, unstarted: Unstarted) {
        self.me().made.bump();
        self.unstarted.push(unstarted);
        if self.workers() > 1
            && let Some(thief) = self.shared.thief_to_wake(self.index)
        {
            self.wake_peer(thief);
        }
    }

    /// Makes a fiber that the given worker starts.
    pub(crate) fn make_placed(&self, worker: usize, unstarted: Unstarted) {
        self.me().made.bump();
        let mailbox = &self.shared.peers[worker].mailbox;
        match self.lives_at(mailbox) {
            true => self.start_or_postpone(unstarted),
            false => self.mail(mailbox, Mail::Start(unstarted)),
        }
    }

    // ----- waking -----

    /// Ends a wait of one of this worker's fibers, if it is in one that can be ended so.
    pub(crate) fn wake(&self, id: FiberId) {
        let fiber = self.table.borrow().get(id);
        if let Some(fiber) = fiber {
            self.make_ready(fiber);
        }
    }

    /// Puts a waiting fiber into the ready list. One that waits for its ops is not touched: only
    /// their last completion resumes it (**I1**).
    pub(crate) fn make_ready(&self, fiber: FiberRef) {
        match fiber.state() {
            State::Waiting(Wait::Ops | Wait::Room) => {}
            State::Waiting(_) => {
                fiber.set_state(State::Runnable);
                self.ready.push(fiber);
            }
            State::Runnable | State::Vacant => {}
        }
    }

    /// Leaves a message for another worker. One for a worker that is gone is for a fiber that is
    /// gone too.
    pub(crate) fn mail(&self, mailbox: &Arc<MailBox>, message: Mail) {
        if let Ok(Posted::MustWake) = mailbox.inbox.post(message) {
            self.wake_peer(mailbox);
        }
    }

    /// Wakes a sleeping worker: by a message of this ring to its ring if it is one of this
    /// runtime, else by its bell. The message is submitted at once, since the fiber that sends it
    /// may go on computing.
    fn wake_peer(&self, mailbox: &MailBox) {
        let ours = self.shared.peers.get(mailbox.worker as usize);
        let ours = ours.is_some_and(|peer| std::ptr::eq(&*peer.mailbox, mailbox));
        let mut driver = self.driver.borrow_mut();
        match mailbox.ring() {
            Some(ring) if ours && driver.send_wake(ring, mailbox.worker) => {
                driver.enter(driver::Wait::No);
            }
            _ => mailbox.inbox.ring_bell(),
        }
    }

    // ----- waiting -----

    /// Suspends the current fiber until something makes it ready.
    #[inline(always)]
    pub(crate) fn suspend(&self, fiber: FiberRef, wait: Wait) {
        debug_assert_eq!(self.running.get(), Some(fiber), "only the running fiber suspends itself");
        fiber.set_state(State::Waiting(wait));
        self.switch_out(fiber);
    }

    /// Suspends the current fiber until others of the runtime have ended.
    pub(crate) fn suspend_for_fibers(&self, fiber: FiberRef, wait: Wait) {
        self.waiting_for_fibers.set(self.waiting_for_fibers.get() + 1);
        self.suspend(fiber, wait);
        self.waiting_for_fibers.set(self.waiting_for_fibers.get() - 1);
    }

    /// Lets the other ready fibers, and the kernel, have their turn.
    #[inline(always)]
    pub(crate) fn yield_now(&self, fiber: FiberRef) {
        fiber.refill_inline();
        self.ready.push(fiber);
        self.switch_out(fiber);
    }

    #[inline(always)]
    fn switch_out(&self, fiber: FiberRef) {
        // std counts panics for each thread: while an unwinding fiber is suspended, others would be
        // told that they unwind. The marks tell them apart (I8).
        let marked = match std::thread::panicking() {
            false => {
                fiber.set_unwinding(false);
                false
            }
            true => self.mark_unwinding(fiber),
        };
        fiber.switch_out();
        if marked && fiber.was_unwinding() {
            self.unwinding.set(self.unwinding.get() - 1);
        }
    }

    /// Marks the fiber if it is suspended while it unwinds; says whether it is.
    #[cold]
    fn mark_unwinding(&self, fiber: FiberRef) -> bool {
        let unwinding = self.is_unwinding(fiber);
        self.blurred.set(self.blurred.get() || self.unwinding.get() > 0);
        fiber.set_unwinding(unwinding);
        self.unwinding.set(self.unwinding.get() + u32::from(unwinding));
        unwinding
    }

    /// No fiber of this worker unwinds: what had to be guessed meanwhile is certain again. A fiber
    /// that was taken for unwinding, and not cancelled for it, is cancelled now.
    #[cold]
    fn clear_marks(&self) {
        self.blurred.set(false);
        self.unwinding.set(0);
        let fibers: Vec<FiberRef> = self.table.borrow().occupied().collect();
        for fiber in fibers {
            fiber.set_unwinding(false);
            if self.stopping_since.get().is_some() {
                self.cancel(fiber);
            }
        }
    }

    /// Whether this (running) fiber unwinds. It is certain while no other fiber of the worker is
    /// suspended in a destructor. Else a fiber is taken for what it was when it was last resumed, and
    /// for unwinding once a cancelled wait unwinds it ([`cancelled::unwind`] marks it): a panic of
    /// another kind that begins meanwhile is not seen.
    #[inline]
    pub(crate) fn is_unwinding(&self, fiber: FiberRef) -> bool {
        if !std::thread::panicking() {
            return false;
        }
        match self.unwinding.get() == 0 && !self.blurred.get() {
            true => true,
            false => fiber.was_unwinding(),
        }
    }

    /// Has the kernel perform one op, and returns its result when it has ended (**I1**): a count,
    /// or a negated errno.
    #[inline(always)]
    pub(crate) fn perform_one(&self, fiber: FiberRef, op: Op) -> i32 {
        let waiter = Waiter::new(fiber.token());
        let completion = Completion::new();
        self.push_or_refuse(fiber, &op, &completion, &waiter);
        self.settle(fiber, &waiter, WaitedOps::one(&completion));
        completion.result()
    }

    /// Has the kernel perform these ops, and returns when all of them have ended (**I1**).
    pub(crate) fn perform(&self, fiber: FiberRef, slots: &[OpSlot]) {
        let waiter = Waiter::new(fiber.token());
        // At once what there is room for, then one by one, in line with the others.
        let pushed = match self.in_line.get() {
            // SAFETY: I1. The slots and the waiter stay until nothing is owed to the waiter.
            0 => unsafe { self.driver.borrow_mut().push_many(slots, &waiter) },
            _ => 0,
        };
        for slot in &slots[pushed..] {
            self.push_or_refuse(fiber, &slot.op, &slot.completion, &waiter);
        }
        self.settle(fiber, &waiter, WaitedOps::slots(slots));
    }

    /// Suspends until nothing is owed to the waiter.
    #[inline(always)]
    fn settle(&self, fiber: FiberRef, waiter: &Waiter, ops: WaitedOps) {
        if waiter.is_settled() {
            return;
        }
        fiber.set_ops(ops);
        fiber.refill_inline();
        fiber.set_state(State::Waiting(Wait::Ops));
        if fiber.is_cancelled() && !self.is_unwinding(fiber) {
            // Cancelled while it waited for room: the call that cancelled it saw no ops.
            self.cancel_ops(fiber);
        }
        self.switch_out(fiber);
        debug_assert!(waiter.is_settled(), "resumed before the last completion");
    }

    /// Gives an op to the driver, at once or when it is this fiber's turn; refuses it if the fiber
    /// is cancelled while it waits for that.
    #[inline(always)]
    fn push_or_refuse(&self, fiber: FiberRef, op: &Op, completion: &Completion, waiter: &Waiter) {
        // SAFETY: I1. The callers' frames hold all of it until nothing is owed to the waiter, and
        // cannot unwind before.
        let pushed = self.in_line.get() == 0
            && unsafe { self.driver.borrow_mut().push(op, completion, waiter) }.is_ok();
        if !pushed {
            // A copy: the op itself need not exist in memory on the way above.
            let op = *op;
            self.push_when_possible(fiber, &op, completion, waiter);
        }
    }

    /// Waits in line for room. The op is refused if the fiber is cancelled meanwhile.
    #[cold]
    fn push_when_possible(
        &self,
        fiber: FiberRef,
        op: &Op,
        completion: &Completion,
        waiter: &Waiter,
    ) {
        loop {
            if fiber.is_cancelled() && !self.is_unwinding(fiber) {
                return completion.refuse(-libc::ECANCELED);
            }
            self.in_line.set(self.in_line.get() + 1);
            self.room_queue.borrow_mut().push_back(fiber);
            self.suspend(fiber, Wait::Room);
            self.in_line.set(self.in_line.get() - 1);
            if !fiber.take_grant() {
                self.room_queue.borrow_mut().retain(|&waits| waits != fiber);
                continue;
            }
            self.granted.set(self.granted.get() - 1);
            // SAFETY: I1, as above.
            if unsafe { self.driver.borrow_mut().push(op, completion, waiter) }.is_ok() {
                return;
            }
        }
    }

    /// Hands free places to those who wait for them, in order.
    #[cold]
    fn grant_room(&self) {
        let room = self.driver.borrow().room();
        let mut queue = self.room_queue.borrow_mut();
        while self.granted.get() < room
            && let Some(fiber) = queue.pop_front()
        {
            if fiber.state() != State::Waiting(Wait::Room) {
                // A cancel has ended its wait: it is in the ready list already.
                continue;
            }
            self.granted.set(self.granted.get() + 1);
            fiber.grant();
            fiber.set_state(State::Runnable);
            self.ready.push(fiber);
        }
    }

    /// Sets a timer for a fiber; it is to be taken back when the wait has ended.
    pub(crate) fn set_timer(&self, at: Instant, fiber: FiberRef) -> TimerId {
        self.has_timers.set(true);
        self.timers.borrow_mut().insert(at, fiber)
    }

    pub(crate) fn take_back_timer(&self, id: TimerId) {
        self.timers.borrow_mut().remove(id);
    }

    /// Whether nothing else could run while this fiber waits: no other is ready, nothing is queued
    /// for the kernel. Then a call that does not block is cheaper than the ring.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        !self.more_to_run.get() && self.ready.is_empty() && !self.driver.borrow().has_queued()
    }

    /// Whether nothing could run while this fiber blocks the thread: no other worker is there to
    /// make one runnable, nothing is in the kernel, no timer is set, and all other fibers wait for
    /// fibers to end.
    #[inline]
    pub(crate) fn is_solitary(&self, fiber: FiberRef) -> bool {
        !self.more_to_run.get()
            && self.ready.is_empty()
            && self.waiting_for_fibers.get() + 1 == self.alive.get()
            && self.shared.is_closed_world()
            && !self.has_timers.get()
            && self.driver.borrow().is_idle()
            && self.unstarted.is_empty()
            && self.in_line.get() == 0
            && !fiber.is_cancelled()
    }

    // ----- cancelling -----

    /// Whether this fiber's next call is refused because it is cancelled. A fiber that asks on
    /// after [`MAX_REFUSALS`] of them is unwound, so that a loop which logs its errors and goes on
    /// cannot spin for ever.
    #[inline]
    pub(crate) fn refuses(&self, fiber: FiberRef) -> bool {
        fiber.is_cancelled() && self.refuses_cancelled(fiber)
    }

    #[cold]
    fn refuses_cancelled(&self, fiber: FiberRef) -> bool {
        if self.is_unwinding(fiber) {
            return false;
        }
        if fiber.count_refusal() > MAX_REFUSALS {
            cancelled::unwind();
        }
        true
    }

    /// Unwinds the fiber if it is cancelled: what a wait does whose signature has no room for an
    /// error. Not where panics abort.
    #[inline]
    pub(crate) fn interrupt_if_cancelled(&self, fiber: FiberRef) {
        if fiber.is_cancelled() && !self.is_unwinding(fiber) {
            cancelled::unwind();
        }
    }

    fn begin_stop(&self) {
        self.stopping_since.set(Some(Instant::now()));
        let fibers: Vec<FiberRef> = self.table.borrow().occupied().collect();
        for fiber in fibers {
            self.cancel(fiber);
        }
    }

    /// Marks a fiber cancelled and ends its wait, where that may be.
    fn cancel(&self, fiber: FiberRef) {
        fiber.set_cancelled();
        if fiber.wakes_on_cancel() {
            fiber.set_state(State::Runnable);
            self.ready.push(fiber);
        } else {
            self.cancel_ops(fiber);
        }
    }

    /// Asks the kernel to give up the ops that a fiber waits for.
    #[cold]
    fn cancel_ops(&self, fiber: FiberRef) {
        let Some(ops) = fiber.cancellable_ops() else { return };
        let mut driver = self.driver.borrow_mut();
        ops.for_each(|completion| driver.cancel(completion));
    }

    /// When to wake for a report of ops that outlast their cancel, if that is before the next
    /// timer; reports them when the time has come.
    fn report_stubborn_at(&self, next_timer: Option<Instant>) -> Option<Instant> {
        let Some(since) = self.stopping_since.get().filter(|_| !self.reported.get()) else {
            return next_timer;
        };
        let due = since + STUBBORN_AFTER;
        if Instant::now() < due {
            return Some(next_timer.map_or(due, |timer| timer.min(due)));
        }
        self.reported.set(true);
        for fiber in self.table.borrow().occupied() {
            let State::Waiting(wait) = fiber.state() else { continue };
            let name = fiber.meta().and_then(|meta| meta.name()).unwrap_or("<unnamed>");
            let what = fiber.op_name().unwrap_or(wait.describe());
            eprintln!("cringle: `run` is ending, but fiber '{name}' still waits for: {what}");
        }
        next_timer
    }

    /// Ends the worker's part: closes its ring, then its mailbox. All other workers have stopped
    /// sending.
    pub(super) fn close(self) {
        let Worker { driver, shared, index, .. } = self;
        drop(driver);
        let (bell, mail) = shared.peers[index as usize].mailbox.inbox.close();
        debug_assert!(!mail.iter().any(|message| matches!(message, Mail::Start(_))));
        drop(bell);
    }
}

impl Table {
    fn vacancy(&mut self) -> FiberRef {
        self.occupied += 1;
        let index = match self.vacant.pop() {
            Some(index) => index as usize,
            None => {
                let index = self.blocks.len();
                let number = u32::try_from(index).expect("fewer than 2³² fibers on a worker");
                self.blocks.push(NonNull::from(Box::leak(Box::new(Fiber::new(number)))));
                index
            }
        };
        FiberRef::new(self.blocks[index])
    }

    fn release(&mut self, index: u32) {
        self.occupied -= 1;
        self.vacant.push(index);
    }

    fn get(&self, id: FiberId) -> Option<FiberRef> {
        let block = FiberRef::new(*self.blocks.get(id.index as usize)?);
        (block.id() == id).then_some(block)
    }

    fn occupied(&self) -> impl Iterator<Item = FiberRef> {
        let blocks = self.blocks.iter().map(|&block| FiberRef::new(block));
        blocks.filter(|block| block.state() != State::Vacant)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        for block in self.blocks.drain(..) {
            // SAFETY: I2. The worker ends after its last fiber, and nothing else refers to blocks.
            drop(unsafe { Box::from_raw(block.as_ptr()) });
        }
    }
}
