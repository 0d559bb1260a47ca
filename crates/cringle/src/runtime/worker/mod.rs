//! A worker: an OS thread with a ring, and the turn that it repeats until the runtime ends.
//!
//! # The turn
//!
//! 1. Every fiber that is ready at the start of the turn runs once, first come, first served. Then
//!    some unstarted fibers start.
//! 2. The worker *looks*, even while fibers are ready: at due timers, at messages from other
//!    threads, at completions in the queue. It enters the kernel if ops are queued, or if the ring
//!    signals pending work.
//! 3. If no fiber is ready, it steals an unstarted one, or sleeps in the kernel until the next
//!    completion, message or timer.
//!
//! A fiber runs on one worker, and is resumed only while it is suspended (**I3**).
//! No borrow of the worker's cells is held while a fiber runs.
//!
//! # The parts
//!
//! Each part owns its state: the ready fibers ([`schedule`]), fibers on the way to their start
//! ([`admission`]), the line for room among the ops ([`room`]), timers ([`alarms`]), cancels on
//! their way ([`cancel`]), unwinding fibers ([`unwinding`]), the state of the runtime
//! ([`lifecycle`]), idle stacks ([`trim`]), records ([`events`]). The methods of [`Worker`] connect
//! them.

mod admission;
mod alarms;
mod cancel;
mod cores;
mod current;
mod events;
mod exclusive;
pub(crate) mod fairness;
mod families;
mod fiber_table;
mod idle_spin;
mod lifecycle;
mod moving;
mod perform;
mod postponed;
#[cfg(feature = "interpose")]
mod review;
mod room;
mod schedule;
mod sharing;
#[cfg(feature = "sim")]
mod simulated;
mod snapshot;
#[cfg(feature = "tracing")]
mod spans;
mod stubborn;
mod suspend;
mod trim;
mod turn;
mod turns;
mod unwinding;
mod wake;
mod within;

pub(crate) use admission::Kin;
pub(super) use current::Before;
pub(crate) use snapshot::Question;
pub(super) use snapshot::{Activity, FiberSnapshot, OpsSnapshot};
pub(crate) use within::Within;

use super::fiber::FiberRef;
use super::shared::{Mail, MailBox, Peer, Shared, Unstarted};
use super::stack::StackPool;
use super::waker::Waker;
use crate::driver::Driver;
use crate::sys::debug_info::Field;
use admission::Admission;
use alarms::Alarms;
use cancel::CancelQueue;
pub(super) use cores::Cores;
use crossbeam_deque::Worker as Deque;
use current::Current;
use events::Events;
pub(super) use families::Families;
#[cfg(feature = "interpose")]
pub(crate) use families::release_block;
use fiber_table::FiberTable;
use idle_spin::SpinPolicy;
use lifecycle::Lifecycle;
pub(super) use moving::{Husk, Moves, Traveller};
#[cfg(feature = "interpose")]
pub(crate) use review::Review;
use room::RoomLine;
use schedule::Schedule;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;
use stubborn::StubbornWatch;
use trim::Trim;

thread_local! {
    static CURRENT: Cell<Option<NonNull<Worker>>> = const { Cell::new(None) };
}

/// See the module.
pub(crate) struct Worker {
    index: u32,
    shared: Arc<Shared>,
    mailbox: Arc<MailBox>,
    /// An empty queue that messages are read into. Kept for its memory.
    mail: RefCell<VecDeque<Mail>>,
    driver: RefCell<Driver>,
    table: FiberTable,
    current: Current,
    schedule: Schedule,
    admission: Admission,
    room: RoomLine,
    alarms: Alarms,
    cancels: CancelQueue,
    stubborn: StubbornWatch,
    families: Families,
    moves: Moves,
    lifecycle: Lifecycle,
    spin_policy: SpinPolicy,
    trim: Trim,
    /// When the kernel is next asked to start a thread for an op, if it lately could not.
    lacks_threads_until: Cell<Option<Instant>>,
    events: Events,
    #[cfg(feature = "tracing")]
    outer_spans: spans::OuterSpans,
}

/// The worker of the calling thread, for code on one of its fibers. It may be kept over a
/// suspension, after which it is the worker that has resumed the fiber: it looks the worker up at
/// each use (**I14**). So whatever suspends its caller is a method of this type, and takes no
/// borrow of a worker along.
#[derive(Clone, Copy)]
pub(crate) struct Here(PhantomData<*const Worker>);

impl std::ops::Deref for Here {
    type Target = Worker;

    #[inline(always)]
    fn deref(&self) -> &Worker {
        let worker = CURRENT.get();
        debug_assert!(worker.is_some(), "a thread that was a worker's leaves it for good");
        // SAFETY: I2, I3. `Worker::here` has found a worker on this thread, where this value stays;
        // its fibers find one whenever they run. The worker outlives its fibers.
        unsafe { worker.unwrap_unchecked().as_ref() }
    }
}

// The calling thread's worker.
impl Worker {
    /// The worker of this thread, if it is one.
    #[inline]
    pub(crate) fn here() -> Option<Here> {
        CURRENT.get().map(|_| Here(PhantomData))
    }

    /// The worker of this thread and the fiber that runs on it. Every call of the library starts
    /// with this. `None` outside of `run`, where calls are the plain blocking ones.
    #[inline]
    pub(crate) fn current() -> Option<(Here, FiberRef)> {
        let here = Worker::here()?;
        Some((here, here.current.get()?))
    }

    /// The fiber whose name and locals the calling code has: the running one, or the one that
    /// foreign code is called [beside](crate::runtime::foreign::call_beside).
    #[inline]
    pub(crate) fn identity() -> Option<FiberRef> {
        Worker::here()?.current.identity()
    }

    pub(crate) fn with<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
        let here = Worker::here();
        f(here.as_deref())
    }

    /// Ends the worker of this thread for good, because the process exits: all calls become plain
    /// ones, and no fiber runs again.
    pub(crate) fn leave_thread() {
        Worker::leave_block();
    }

    /// Makes the caller's code run beside the running fiber, until [`step_back`](Self::step_back).
    pub(super) fn step_aside(&self) -> Before {
        self.current.step_aside()
    }

    pub(super) fn step_back(&self, before: Before) {
        self.current.step_back(before);
    }
}

/// Where a debugger finds the parts of a [`Worker`].
pub(super) const FIELDS: &[Field] = &[
    Field::new("worker.running", offset_of!(Worker, current) + Current::RUNNING),
    Field::new("worker.clock_ns", offset_of!(Worker, events) + Events::CLOCK),
];

impl Worker {
    pub(super) fn new(
        index: u32,
        shared: Arc<Shared>,
        driver: Driver,
        unstarted: Deque<Unstarted>,
        stacks: StackPool,
        families: Families,
        moves: Moves,
    ) -> Worker {
        let me = &shared.peers[index as usize];
        me.set_driver_counts(driver.counts());
        Worker {
            index,
            mailbox: Arc::clone(&me.mailbox),
            mail: RefCell::default(),
            events: Events::new(Arc::clone(&me.counters), &driver),
            table: FiberTable::new(index, shared.home_bits()),
            current: Current::default(),
            schedule: Schedule::default(),
            admission: Admission::new(unstarted, stacks),
            shared,
            room: RoomLine::default(),
            alarms: Alarms::default(),
            cancels: CancelQueue::default(),
            stubborn: StubbornWatch::default(),
            families,
            moves,
            lifecycle: Lifecycle::default(),
            spin_policy: SpinPolicy::default(),
            trim: Trim::default(),
            lacks_threads_until: Cell::new(perform::lack_at_start(&driver)),
            driver: RefCell::new(driver),
            #[cfg(feature = "tracing")]
            outer_spans: spans::OuterSpans::default(),
        }
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The number of workers of this runtime.
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

    /// Whether time, files and faults are simulated.
    #[inline]
    pub(crate) fn is_simulated(&self) -> bool {
        self.driver.borrow().is_simulated()
    }

    /// The records of this worker.
    #[inline(always)]
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Names a fiber that has begun without a name.
    #[cfg(feature = "interpose")]
    pub(crate) fn rename(&self, fiber: FiberRef, name: Arc<str>) {
        fiber.rename(name);
        if let Some(meta) = fiber.meta() {
            self.events.named(fiber, meta);
        }
    }

    /// The part of this worker that others see.
    fn me(&self) -> &Peer {
        &self.shared.peers[self.index as usize]
    }

    pub(crate) fn mailbox(&self) -> &Arc<MailBox> {
        &self.mailbox
    }

    pub(crate) fn lives_at(&self, mailbox: &Arc<MailBox>) -> bool {
        Arc::ptr_eq(self.mailbox(), mailbox)
    }

    /// Returns a handle that ends a wait of this fiber from anywhere. It is fastest while the fiber
    /// is on this worker, as in the wait that begins next.
    pub(crate) fn waker(&self, fiber: FiberRef) -> Waker {
        Waker::Fiber { home: Arc::clone(self.mailbox()), id: fiber.id() }
    }

    /// Closes the ring, and then the mailbox (**I9**). All other workers have stopped sending.
    pub(super) fn close(self) {
        let Worker { driver, shared, index, .. } = self;
        drop(driver);
        let (bell, mail) = shared.peers[index as usize].mailbox.inbox.close();
        debug_assert!(
            !mail
                .iter()
                .any(|message| matches!(message, Mail::Start(_) | Mail::Arrive(_) | Mail::Bury(_))),
            "I2: a fiber is dropped"
        );
        drop(bell);
    }
}
