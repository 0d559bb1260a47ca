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
//! Only its host, one worker at a time, resumes a fiber, and only while it is suspended (**I3**).
//! No borrow of the worker's cells is held while a fiber runs.
//!
//! # The parts
//!
//! Each part owns its state, and the methods on that: the blocks of fibers ([`fiber_table`]), the
//! fiber that runs ([`foreground`]) and the ready ones ([`schedule`]), fibers on the way to
//! their start ([`admission`], [`postponed`]), families ([`families`]) and which of them move
//! ([`sharing`], [`pairing`]), the line for room among the ops ([`room`]), timers ([`alarms`]),
//! cancels on their way ([`cancel`]), the state of the runtime ([`lifecycle`]), idle stacks
//! ([`trim`]), records ([`events`]). A part does not know the worker. What needs several parts is a
//! method of [`Worker`].
//!
//! # The hand-overs
//!
//! A frame or a fiber changes its owner at few places. A debug build asserts there what the
//! invariants of `ARCHITECTURE.md` say:
//!
//! | from, to | in | asserted |
//! |---|---|---|
//! | frame, driver | `Completion::start`, each driver's `push` | **I1** the completion is new; **I5** its op has an entry; **I7** the limit holds; **I9** no cancel of another op is left |
//! | file, op | `check` in `fiber/op.rs` of `cringle-std` | **I8** an unwinding fiber makes the plain call; **I11** no op is at the cursor of a seekable file |
//! | driver, frame | `Completion::finish`, [`perform`] | **I1** nothing is owed to the frame; **I4** so for the driver's own read; **I5** each entry arrives once; **I9** no cancel is queued |
//! | fiber, worker | [`suspend`] | **I3**, **I13** the fiber runs, and no foreign code beside it; **I6** it holds no lock of the library |
//! | worker, fiber | [`turn`], `Fiber::resume` | **I3** it is ready, and this worker is its host; **I14** it has its own thread-locals |
//! | wait, ready queue | [`wake`], `ReadyQueue::push` | **I3** the fiber waits; it is in one queue, once |
//! | worker, family's way | [`moving`] (depart) | **I1** no op is with the ring; **I3** no member runs, and the worker is the host |
//! | way, next worker | [`moving`] (arrive) | **I3** the family was given away; **I9** no timer of the last host is left; **I14** it has its own thread-locals |
//! | frame, region | [`within`] (enter) | **I3** its own fiber enters it; **I12** it lies on that fiber's stack |
//! | region, frame | [`within`] (leave) | **I3** its own fiber leaves it; **I9** its timer is taken back; **I12** it is the innermost |
//! | lock, waiter | `sync/wait_queue.rs` of `cringle-std`, [`room`] | **I10** the waiter has left its queue, and gets one outcome; **I7** one place |
//! | foreign code, fiber | [`foreground`] | **I13** the foreign code ran beside it |
//! | block, family | `Block::{begin, reset}` | **I14** the family's code runs on it, or none; **I15** the id is where glibc has it |
//! | file, copy | `cringle_sys::Mapping` | **I16** the bytes are mapped, also in an optimised build |
//! | fiber, vacant block | [`turn`] (end), `Fiber::occupy` | **I2** each fiber was started and has ended; **I12** in no region |
//!
//! `LentFrame` (**I12**) and the drop of a ring with ops in flight (**I1**) end any process.

mod admission;
mod alarms;
mod cancel;
mod cores;
mod current;
mod events;
mod exclusive;
pub mod fairness;
mod families;
mod fiber_table;
mod foreground;
mod idle_spin;
mod lifecycle;
mod moving;
mod own_thread;
mod pairing;
mod perform;
mod postponed;
mod review;
mod room;
mod schedule;
mod sharing;
mod simulated;
mod snapshot;
mod stubborn;
mod suspend;
mod trim;
mod turn;
mod turns;
mod unwinding;
mod wake;
mod within;

pub use admission::Kin;
pub use current::{Current, Here};
pub(super) use foreground::Before;
pub use snapshot::Question;
pub use snapshot::{Activity, FiberSnapshot, OpsSnapshot};
pub use within::Within;

use super::shared::{Mail, MailBox, Peer, Shared, Unstarted};
use super::spans::OuterSpans;
use super::stack::StackPool;
use admission::Admission;
use alarms::Alarms;
use cancel::CancelQueue;
pub(super) use cores::Cores;
use cringle_driver::Driver;
use cringle_sys::debug_info::Field;
use crossbeam_deque::Worker as Deque;
use events::Events;
pub use families::Families;
pub use families::{release_block, take_block};
use fiber_table::FiberTable;
use foreground::Foreground;
use idle_spin::SpinPolicy;
use lifecycle::Lifecycle;
pub use moving::{Husk, Traveller};
pub use own_thread::{
    Host, end_thread_first, forget_own_thread, is_on_own_thread, return_to_worker,
};
pub(crate) use pairing::Exchange;
use pairing::Pairing;
use perform::ThreadLack;
use postponed::Postponed;
pub use review::Review;
use room::RoomLine;
use schedule::Schedule;
pub use sharing::Moves;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Instant;
use stubborn::StubbornWatch;
use trim::Trim;

/// See the module.
pub struct Worker {
    index: u32,
    shared: Arc<Shared>,
    mailbox: Arc<MailBox>,
    /// An empty queue that messages are read into. Kept for its memory.
    mail: RefCell<VecDeque<Mail>>,
    driver: RefCell<Driver>,
    is_simulated: bool,
    pub table: FiberTable,
    pub(super) foreground: Foreground,
    schedule: Schedule,
    admission: Admission,
    postponed: Postponed,
    room: RoomLine,
    alarms: Alarms,
    cancels: CancelQueue,
    pub stubborn: StubbornWatch,
    pub families: Families,
    pub moves: Moves,
    pairing: Pairing,
    lifecycle: Lifecycle,
    spin_policy: SpinPolicy,
    trim: Trim,
    pub thread_lack: ThreadLack,
    events: Events,
    pub(crate) outer_spans: OuterSpans,
}

/// Where a debugger finds the parts of a [`Worker`].
pub const FIELDS: &[Field] = &[
    Field::new("worker.running", offset_of!(Worker, foreground) + Foreground::RUNNING),
    Field::new("worker.clock_ns", offset_of!(Worker, events) + Events::CLOCK),
];

impl Worker {
    pub fn new(
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
            table: FiberTable::new(index, Arc::clone(&shared), moves.may_happen()),
            foreground: Foreground::default(),
            schedule: Schedule::default(),
            admission: Admission::new(unstarted, stacks),
            shared,
            postponed: Postponed::default(),
            room: RoomLine::default(),
            alarms: Alarms::default(),
            cancels: CancelQueue::default(),
            stubborn: StubbornWatch::default(),
            families,
            moves,
            pairing: Pairing::default(),
            lifecycle: Lifecycle::default(),
            spin_policy: SpinPolicy::default(),
            trim: Trim::new(driver.is_in_real_time()),
            thread_lack: ThreadLack::new(&driver),
            is_simulated: driver.simulation().is_some(),
            driver: RefCell::new(driver),
            outer_spans: Default::default(),
        }
    }

    pub fn index(&self) -> u32 {
        self.index
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The driver. Borrowed for short: never while a fiber runs or is suspended.
    pub fn driver(&self) -> &RefCell<Driver> {
        &self.driver
    }

    /// The time by which this worker's timers run.
    #[inline]
    pub fn now(&self) -> Instant {
        self.driver.borrow().now()
    }

    /// See [`Driver::may_bypass`].
    #[inline]
    pub fn may_bypass(&self) -> bool {
        !self.is_simulated
    }

    /// The records of this worker.
    #[inline(always)]
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// The part of this worker that others see.
    fn me(&self) -> &Peer {
        &self.shared.peers[self.index as usize]
    }

    pub fn mailbox(&self) -> &Arc<MailBox> {
        &self.mailbox
    }

    /// Closes the ring, and then the mailbox (**I9**). All other workers have stopped sending.
    pub fn close(self) {
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
