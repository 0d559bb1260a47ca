//! The simulated driver: time, latency, order and faults, all drawn from one seed.
//!
//! It owns the ops that fibers have lent it, and shares a [`Core`] (files, clock, choices) with the
//! [`World`](crate::World) that outlives it. Its files have the names of
//! [`uring`](cringle_driver::uring)'s where they do the same. It promises:
//!
//! - The same seed makes the same choices in the same order: nothing depends on an address, a
//!   descriptor's number, the order of a hash map, or real time.
//! - Every op is answered exactly once (**I5**), also a cancelled one, and the memory lent for it
//!   is not touched before or after (**I1**). Both are *checked* here, not assumed.
//! - No call sleeps: when all fibers wait, the virtual time jumps to the next event; if there is
//!   none, the driver reports a deadlock.
//!
//! An op is performed for real, by [`blocking::perform`](cringle_driver::blocking), at the time
//! that the seed has drawn. The files are memory files of the kernel, so that descriptors, cursors,
//! appends and locks need no imitation.
//!
//! A run must not depend on anything that the seed does not determine. The tests compare a hash of
//! all events, which excludes descriptor numbers and addresses; maps are ordered; `unblock` calls
//! its closure at once. Inline calls of `fs` are disabled, because faults could not reach them. A
//! worker does not poll before it sleeps, and where fibers move, the seed draws which ([`baton`],
//! `worker/simulated.rs` of `cringle-core`).

mod baton;
mod cancel;
mod checker;
mod core;
mod enter;
mod files;
mod lent_memory;
mod node;
mod options;
mod perform;
mod plain;
mod push;
mod reap;
mod rng;
mod run_world;
#[cfg(any(test, feature = "sabotage"))]
mod sabotage;
mod sizes;
mod write_back;

use cancel::CancelRequest;
use cringle_driver::registered::Registered;
use cringle_driver::simulation::Simulation;
use cringle_driver::{Completion, Counts, DriverId, Full, Op, OpDescription, Token, Wait, Waiter};
use cringle_sys::lock::Mutex;
use lent_memory::LentMemory;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

pub use checker::{Checker, Failure};
pub(crate) use core::Core;
pub use core::Stats;
use core::with_here;

pub(crate) use cringle_driver::simulation::HaltReason;
pub use options::{Fault, Faults, Options};
pub use rng::Rng;
pub(crate) use run_world::RunWorld;
#[cfg(any(test, feature = "sabotage"))]
pub use sabotage::Sabotage;

/// See the module.
pub(crate) struct Sim {
    core: Arc<Mutex<Core>>,
    /// The number of the worker in its run.
    worker: usize,
    id: DriverId,
    limit: u32,
    in_flight: u32,
    /// The ops in flight, by the number of their push.
    flights: BTreeMap<u64, Flight>,
    next_flight: u64,
    /// Pushed and not submitted yet.
    queued: VecDeque<u64>,
    /// The future events by their time in nanoseconds. A second number orders events of one time.
    timeline: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    /// Ops that wait for a peer.
    blocked: Vec<u64>,
    /// The time of the last answer, while answers keep the order of the ops.
    last_due_ns: u64,
    completions: VecDeque<Cqe>,
    /// Completions for which the queue had no room; the next enter delivers them.
    overflow: VecDeque<Cqe>,
    halt: Cell<Option<HaltReason>>,
    fixed: Registered,
    counts: Arc<Counts>,
}

/// An op between its push and its completion.
struct Flight {
    op: Op,
    completion: *const Completion,
    stage: Stage,
    lent: LentMemory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Queued,
    /// It is performed at this time of the timeline.
    Armed((u64, u64)),
    /// It was attempted, and waits for a peer.
    Blocked,
    /// It has its result, and its memory is still lent.
    EarlyResult,
    /// Its completion is in the queue.
    Done,
}

enum Event {
    Perform(u64),
    /// Ends an op with this result, whose memory was lent beyond the result.
    Release(u64, i32),
    Cancel(CancelRequest),
}

/// An entry of the completion queue.
#[derive(Clone, Copy)]
enum Cqe {
    Op {
        flight: u64,
        result: i32,
    },
    /// The result of an op that another entry will end.
    EarlyResult {
        flight: u64,
        result: i32,
    },
    Cancel {
        ask: CancelRequest,
        result: i32,
    },
}

impl Sim {
    /// See [`RunWorld`].
    fn new(core: Arc<Mutex<Core>>, worker: usize, bell: Arc<AtomicBool>) -> Sim {
        let limit = {
            let mut locked = lock(&core);
            locked.baton.hang_bell(worker, bell);
            locked.options.in_flight_limit
        };
        core::enter_thread(&core);
        Sim {
            core,
            worker,
            id: DriverId::new(),
            limit,
            in_flight: 0,
            flights: BTreeMap::new(),
            next_flight: 0,
            queued: VecDeque::new(),
            timeline: BTreeMap::new(),
            next_event: 0,
            blocked: Vec::new(),
            last_due_ns: 0,
            completions: VecDeque::new(),
            overflow: VecDeque::new(),
            halt: Cell::new(None),
            fixed: Registered::default(),
            counts: Arc::default(),
        }
    }

    /// Schedules an event. Returns its key in the timeline.
    fn schedule(&mut self, at_ns: u64, event: Event) -> (u64, u64) {
        let key = (at_ns, self.next_event);
        self.next_event += 1;
        self.timeline.insert(key, event);
        key
    }
}

impl Simulation for Sim {
    unsafe fn push(
        &mut self,
        op: &Op,
        completion: &Completion,
        waiter: &Waiter,
    ) -> Result<(), Full> {
        // SAFETY: I1, by the contract.
        unsafe { Sim::push(self, op, completion, waiter) }
    }

    fn attention(&mut self) -> (bool, bool) {
        Sim::attention(self)
    }

    fn enter(&mut self, wait: Wait) {
        Sim::enter(self, wait);
    }

    fn reap(&mut self, sink: &mut dyn FnMut(Token)) {
        Sim::reap(self, sink);
    }

    fn cancel(&mut self, completion: &Completion) {
        Sim::cancel(self, completion);
    }

    fn id(&self) -> DriverId {
        self.id
    }

    fn describe(&self, completion: &Completion) -> OpDescription {
        let mut flights = self.flights.values();
        let flight = flights.find(|flight| std::ptr::eq(flight.completion, completion));
        flight.map_or_else(|| completion.describe(), |flight| flight.op.describe())
    }

    fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    fn now_ns(&self) -> u64 {
        lock(&self.core).now_ns
    }

    fn now(&self) -> Instant {
        lock(&self.core).now()
    }

    #[inline]
    fn room(&self) -> u32 {
        self.limit - self.in_flight
    }

    fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.completions.is_empty() && self.overflow.is_empty()
    }

    fn queued(&self) -> u32 {
        self.queued.len() as u32
    }

    /// Always true. If nothing were queued, the fiber would make an inline call, which no fault can
    /// reach.
    fn has_queued(&self) -> bool {
        true
    }

    fn enter_thread(&self) {
        core::enter_thread(&self.core);
    }

    fn wait_for_turn(&self) {
        drop(baton::wait_for_turn(lock(&self.core), self.worker));
    }

    fn hand_over(&self) {
        drop(baton::hand_over(lock(&self.core), self.worker));
    }

    fn leave(&self) {
        baton::leave(lock(&self.core), self.worker);
    }

    fn draw_below(&self, limit: usize) -> usize {
        lock(&self.core).baton.draw_below(limit as u64) as usize
    }

    fn draw_move(&self) -> bool {
        lock(&self.core).baton.draw_move()
    }

    fn take_halt(&self) -> Option<HaltReason> {
        self.halt.take()
    }

    fn record_halt(&self, reason: HaltReason, is_stopping: bool, waits: String) -> bool {
        let (checker, problem) = match reason {
            HaltReason::PowerLost => return true,
            HaltReason::Deadlock => (Checker::Deadlock, "no fiber can continue"),
            HaltReason::Livelock => (Checker::Livelock, "the fibers run without end"),
        };
        let waits = lock(&self.core).list_waits(self.worker, waits);
        let Some(waits) = waits else { return false };
        let report = format!("{problem}:{waits}");
        if is_stopping {
            cringle_sys::report(format_args!("the run cannot end, {report}\naborting"));
            std::process::abort();
        }
        lock(&self.core).fail(checker, report);
        true
    }

    fn register_file(&mut self, fd: RawFd) -> std::io::Result<u32> {
        self.fixed.add_file(cringle_sys::duplicate(fd)?)
    }

    fn unregister_file(&mut self, slot: u32) {
        self.fixed.remove_file(slot);
    }

    fn registered_file(&self, slot: u32) -> Option<RawFd> {
        self.fixed.file(slot as i32)
    }

    fn register_buffer(&mut self) -> std::io::Result<u16> {
        self.fixed.add_buffer()
    }

    fn unregister_buffer(&mut self, slot: u16) {
        self.fixed.remove_buffer(slot);
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        core::leave_thread();
        if !self.flights.is_empty() {
            cringle_sys::report(format_args!(
                "a simulated ring was closed with {} ops in flight; aborting",
                self.flights.len()
            ));
            std::process::abort();
        }
    }
}

/// Locks the core. Only a bug of a checker panics under this lock; its findings are still reported.
pub(crate) fn lock(core: &Mutex<Core>) -> cringle_sys::lock::MutexGuard<'_, Core> {
    core.lock()
}
