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
//!    completion, message or timer.
//!
//! A fiber runs on the worker that started it, and only while it is suspended is it resumed
//! (**I3**). No borrow of the worker's cells is held while a fiber runs.

mod cancel;
mod events;
mod exclusive;
pub(crate) mod fairness;
mod fiber_table;
mod idle_spin;
mod postponed;
#[cfg(feature = "sim")]
mod simulated;
mod snapshot;
#[cfg(feature = "tracing")]
mod spans;
mod spawn;
mod suspend;
mod turn;
mod unwinding;
mod wake;

pub(crate) use cancel::Within;
pub(crate) use snapshot::Question;
pub(super) use snapshot::{Activity, FiberSnapshot, OpsSnapshot};

use super::cancelled::Reason;
use super::fiber::{FiberRef, ReadyQueue, Running};
use super::members::Address;
use super::shared::{Mail, MailBox, Peer, Shared, Unstarted};
use super::stack::StackPool;
use super::timers::{TimerId, Timers};
use super::waker::Waker;
use crate::driver::Driver;
use crossbeam_deque::Worker as Deque;
use events::Events;
use fiber_table::FiberTable;
use idle_spin::SpinPolicy;
use postponed::Postponed;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

thread_local! {
    static CURRENT: Cell<Option<NonNull<Worker>>> = const { Cell::new(None) };
}

/// See the module.
pub(crate) struct Worker {
    index: u32,
    shared: Arc<Shared>,
    mailbox: Arc<MailBox>,
    driver: RefCell<Driver>,
    /// The fiber that runs now.
    running: Running,
    ready: ReadyQueue,
    /// Others will run after it in this turn.
    more_to_run: Cell<bool>,
    /// Fibers made here and not started; other workers may take them.
    unstarted: Deque<Unstarted>,
    postponed: RefCell<Postponed>,
    table: RefCell<FiberTable>,
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
    /// Fibers that were suspended while they unwound, or may have, in this era; and the thread itself if it
    /// unwinds.
    unwinding: Cell<u32>,
    era: Cell<u32>,
    /// The fiber that alone runs now, though it is suspended.
    runs_alone: Cell<Option<FiberRef>>,
    /// The fiber that foreign code is called beside.
    beside: Cell<Option<FiberRef>>,
    /// Fibers to cancel, and why; somebody is at it.
    to_cancel: RefCell<VecDeque<(Address, Reason)>>,
    cancelling: Cell<bool>,
    patience: SpinPolicy,
    /// Messages that are being read; kept for its memory.
    mail: RefCell<VecDeque<Mail>>,
    /// It has seen that everything is cancelled.
    roots_cancelled: Cell<bool>,
    /// It has seen that the runtime ends, at this time.
    stopping_since: Cell<Option<Instant>>,
    /// It has seen that the runtime has ended.
    stopped: Cell<bool>,
    /// An alarm is set to look for cancelled fibers that still wait.
    watches_stubborn: Cell<Option<TimerId>>,
    /// Started fibers that have not ended.
    alive: Cell<u32>,
    /// Fibers that wait for others of this runtime to end.
    waiting_for_fibers: Cell<u32>,
    /// A fiber is resumed to say where it is.
    probes: Cell<bool>,
    events: Events,
    #[cfg(feature = "tracing")]
    outer_spans: spans::Outer,
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
        driver: Driver,
        unstarted: Deque<Unstarted>,
        stacks: StackPool,
    ) -> Worker {
        let me = &shared.peers[index as usize];
        me.set_driver_counts(driver.counts());
        let events = Events::new(Arc::clone(&me.counters), &driver);
        Worker {
            index,
            mailbox: Arc::clone(&shared.peers[index as usize].mailbox),
            shared,
            driver: RefCell::new(driver),
            running: Running::default(),
            ready: ReadyQueue::default(),
            more_to_run: Cell::new(false),
            unstarted,
            postponed: RefCell::default(),
            table: RefCell::default(),
            stacks: RefCell::new(stacks),
            timers: RefCell::default(),
            has_timers: Cell::new(false),
            room_queue: RefCell::default(),
            granted: Cell::new(0),
            in_line: Cell::new(0),
            // A `run` in a destructor: std's count says nothing about the fibers here.
            unwinding: Cell::new(u32::from(std::thread::panicking())),
            era: Cell::new(0),
            runs_alone: Cell::new(None),
            beside: Cell::new(None),
            to_cancel: RefCell::default(),
            cancelling: Cell::new(false),
            patience: SpinPolicy::default(),
            mail: RefCell::default(),
            roots_cancelled: Cell::new(false),
            stopping_since: Cell::new(None),
            stopped: Cell::new(false),
            watches_stubborn: Cell::new(None),
            alive: Cell::new(0),
            waiting_for_fibers: Cell::new(0),
            probes: Cell::new(false),
            events,
            #[cfg(feature = "tracing")]
            outer_spans: spans::Outer::default(),
        }
    }

    /// The worker of this thread, if it is one.
    #[inline]
    pub(crate) fn here() -> Option<Here> {
        CURRENT.get().map(Here)
    }

    /// The calling thread is no worker's any more, because the process ends: all calls on it are plain ones, and no
    /// fiber of it runs again.
    pub(crate) fn leave_thread() {
        CURRENT.set(None);
    }

    /// The worker of this thread and the fiber that runs on it: what every call of the library asks
    /// first. `None` outside of `run`, where the calls are the plain blocking ones.
    #[inline]
    pub(crate) fn current() -> Option<(Here, FiberRef)> {
        let here = Worker::here()?;
        Some((here, here.running.get()?))
    }

    /// The fiber whose name and locals the calling code has: the one that runs, or that foreign code is called
    /// [beside](crate::runtime::foreign::call_beside). `None` outside of any.
    #[inline]
    pub(crate) fn identity() -> Option<FiberRef> {
        let here = Worker::here()?;
        here.running.get().or_else(|| here.beside.get())
    }

    /// Whether the running fiber is not to be suspended, and its calls are plain ones, from here on: what was so
    /// before, for [`step_back`](Self::step_back).
    pub(super) fn step_aside(&self) -> (Option<FiberRef>, Option<FiberRef>) {
        let running = self.running.get();
        self.running.set(None);
        let beside = self.beside.get();
        self.beside.set(running.or(beside));
        (running, beside)
    }

    pub(super) fn step_back(&self, (running, beside): (Option<FiberRef>, Option<FiberRef>)) {
        self.running.set(running);
        self.beside.set(beside);
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

    /// The driver. Borrowed for short: never while a fiber runs or is suspended.
    pub(crate) fn driver(&self) -> &RefCell<Driver> {
        &self.driver
    }

    /// The time by which this worker's timers run.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.driver.borrow().now()
    }

    /// Whether its time, files and faults are those of a simulation.
    #[inline]
    pub(crate) fn is_simulated(&self) -> bool {
        self.driver.borrow().is_simulated()
    }

    /// The records of this worker.
    #[inline(always)]
    pub(crate) fn events(&self) -> &Events {
        &self.events
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
