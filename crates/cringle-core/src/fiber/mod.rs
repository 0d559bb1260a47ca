//! The control block of a started fiber: everything that its worker knows about it.
//!
//! Blocks are allocated one by one, keep their address, and are reused. A generation number tells a
//! new tenant from an old one, so that a late message wakes no other fiber (**I9**). Only the
//! fiber's host touches a block (**I3**), except for the [`Label`] and the [`Transit`].

pub mod body;
mod budget;
mod cancels;
mod debug_info;
mod hazards;
mod libc_call;
mod ops;
mod probe;
mod ready_queue;
mod siblings;
mod switch;
mod transit;
mod unwind;
mod wait;

pub use debug_info::FIELDS;
pub(super) use ops::WaitedOps;
pub(super) use ready_queue::ReadyQueue;
pub(super) use siblings::Siblings;
pub(super) use transit::Transit;
pub use wait::Wait;
pub use wait::{WAIT_PHRASES, WAIT_WORDS};

use super::family::FamilyRef;
use super::identity::Meta;
use super::label::Label;
use super::region::{Region, Regions};
use super::shared::Mail;
use super::stack::{Stack, StackBounds};
use super::timers::TimerId;
use super::unwinding::Unwinding;
use super::wait_target::{FiberTag, ScopeOrigin, Target};
use budget::Budget;
use corosensei::{Coroutine, Yielder};
use probe::{Probe, Probes};
use std::any::Any;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Instant;

/// The name of a fiber for other workers: its block's index and generation, never an address
/// (**I9**). No other block of the runtime has the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FiberId {
    pub index: u32,
    pub(crate) generation: u32,
}

/// A fiber that the current worker hosts. It may be copied, because its block outlives the fiber: a
/// worker frees its blocks when it ends, after its last fiber (**I2**).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FiberRef(NonNull<Fiber>);

impl FiberRef {
    pub(super) fn new(block: NonNull<Fiber>) -> FiberRef {
        FiberRef(block)
    }

    /// The number of this fiber as the holder of a lock.
    #[inline]
    pub fn tag(self) -> FiberTag {
        FiberTag::of_block(self.0.as_ptr() as usize, self.generation.get())
    }

    /// The token that the driver hands back with the fiber's last completion.
    pub(crate) fn token(self) -> cringle_driver::Token {
        self.0.cast()
    }

    pub(super) fn from_token(token: cringle_driver::Token) -> FiberRef {
        FiberRef(token.cast())
    }
}

impl std::ops::Deref for FiberRef {
    type Target = Fiber;

    #[inline]
    fn deref(&self) -> &Fiber {
        // SAFETY: I2, I3. A block is freed only when its worker ends, references are used by the
        // fiber's host (the type is not Send), and everything inside is a cell.
        unsafe { self.0.as_ref() }
    }
}

/// Whether a fiber runs or waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunState {
    /// The block is free.
    Vacant,
    /// The fiber runs, or is in the ready queue.
    Runnable,
    /// The fiber is suspended in this wait.
    Waiting(Wait),
}

/// The fiber that a worker runs. The worker alone writes it, by a plain store; the watchdog and the
/// dump read it from other threads.
#[derive(Default)]
pub struct Running(AtomicPtr<Fiber>);

impl Running {
    /// For the worker itself.
    #[inline(always)]
    pub(super) fn get(&self) -> Option<FiberRef> {
        NonNull::new(self.0.load(Ordering::Relaxed)).map(FiberRef)
    }

    /// For the worker itself.
    #[inline(always)]
    pub(super) fn set(&self, fiber: Option<FiberRef>) {
        let block = fiber.map_or(std::ptr::null_mut(), |fiber| fiber.0.as_ptr());
        self.0.store(block, Ordering::Relaxed);
    }

    /// For any thread: the label of the fiber that runs now, or ran a moment ago.
    ///
    /// # Safety
    ///
    /// I2: the worker's blocks exist until the label is no longer used.
    pub(super) unsafe fn label(&self) -> Option<&Label> {
        let block = NonNull::new(self.0.load(Ordering::Relaxed))?;
        // SAFETY: I2. The block exists, by the contract. Only its label is touched, which any
        // thread may read.
        Some(unsafe { &(*block.as_ptr()).cold.label })
    }
}

type FiberCoroutine = Coroutine<(), (), (), Stack>;

/// See the module.
pub struct Fiber {
    index: u32,
    generation: Cell<u32>,
    state: Cell<RunState>,
    /// The next fiber in the ready queue.
    next: Cell<Option<FiberRef>>,
    /// Touched by the scheduler alone, never from within the fiber.
    coroutine: UnsafeCell<Option<FiberCoroutine>>,
    /// The thread pointer while the fiber runs; 0 if it uses the worker's thread-locals.
    thread_pointer: Cell<usize>,
    yielder: Cell<*const Yielder<(), ()>>,
    /// The ops it waits for, in the state `Waiting(Ops)`.
    ops: Cell<WaitedOps>,
    budget: Budget,
    /// The timer that ends its wait.
    wait_alarm: Cell<Option<TimerId>>,
    /// The place among the ops in flight that it waited for is granted.
    granted: Cell<bool>,
    /// A cancel reaches the region that the fiber is in.
    cancelled: Cell<bool>,
    /// Calls that were refused because it is cancelled.
    refusals: cancels::Refusals,
    /// It is in an interposed call of libc: nothing may unwind, and a further such call is plain.
    in_libc_call: Cell<bool>,
    /// It is a thread of the program, and in no code of the library.
    in_program: Cell<bool>,
    /// The state of its cancellation as a thread; null if it is no thread.
    thread_word: Cell<*const AtomicU32>,
    /// The region of the cancellation point of libc that it is in.
    point: Cell<Option<NonNull<Region>>>,
    hazards: hazards::Hazards,
    unwinding: Cell<Unwinding>,
    /// The question that it is resumed to answer. `None` if it is resumed to continue.
    probed: Cell<Option<Probe>>,
    /// When it was last suspended, by its worker's coarse clock.
    since_ns: Cell<u64>,
    /// The object it waits for, which lies in its suspended frame.
    target: Cell<Option<Target<'static>>>,
    cold: Cold,
}

/// The part that most fibers touch only at their start and end.
struct Cold {
    /// The name and identity, in the packet that the body shares with its handle.
    meta: Cell<Option<NonNull<Meta>>>,
    stack: Cell<StackBounds>,
    /// `None` in a vacant block.
    family: Cell<Option<FamilyRef>>,
    /// The fiber has begun and belongs to no scope.
    root: Cell<bool>,
    regions: Regions,
    /// When it was cancelled in a wait that a cancel does not end at once, while it is in that
    /// wait.
    asked_to_end: Cell<Option<Instant>>,
    locals: RefCell<Locals>,
    label: Label,
    scope: Cell<Option<ScopeOrigin>>,
    transit: Transit<Mail>,
    /// The time of its wait's timer, which was taken back for a move and is to be set again.
    packed_alarm: Cell<Option<Instant>>,
    siblings: Cell<siblings::Place>,
    /// The worker that has woken it last, how often in a row, and when.
    wakes: Cell<Option<(u32, u32, Instant)>>,
    /// It has moved to its worker, and has not run there yet.
    arrived: Cell<bool>,
    /// Its last runs in a row that were long.
    long_runs: Cell<u32>,
    /// Its last departure in a trace: the trace's epoch, and the flow.
    departure: Cell<Option<(u32, u64)>>,
    /// It waits for other fibers to end, or has done so until it was made ready.
    waits_for_fibers: Cell<bool>,
    probes: Probes,
    /// The address of the frame that catches the last cancel which unwound the fiber.
    cancel_catcher: Cell<usize>,
}

/// A fiber's locals by key, in the order in which they were made. `None` while a value is dropped,
/// and afterwards.
pub type Locals = Vec<(usize, Option<Rc<dyn Any>>)>;

// Life and state.
impl Fiber {
    pub(super) fn new(index: u32, host: u32) -> Fiber {
        Fiber {
            index,
            generation: Cell::new(0),
            state: Cell::new(RunState::Vacant),
            next: Cell::new(None),
            coroutine: UnsafeCell::new(None),
            thread_pointer: Cell::new(0),
            yielder: Cell::new(std::ptr::null()),
            ops: Cell::new(WaitedOps::none()),
            budget: Budget::new(),
            wait_alarm: Cell::new(None),
            granted: Cell::new(false),
            cancelled: Cell::new(false),
            refusals: cancels::Refusals::default(),
            in_libc_call: Cell::new(false),
            in_program: Cell::new(false),
            thread_word: Cell::new(std::ptr::null()),
            point: Cell::new(None),
            hazards: hazards::Hazards::default(),
            unwinding: Cell::new(Unwinding::No),
            probed: Cell::new(None),
            since_ns: Cell::new(0),
            target: Cell::new(None),
            cold: Cold {
                meta: Cell::default(),
                stack: Cell::default(),
                family: Cell::new(None),
                root: Cell::new(false),
                regions: Regions::new(),
                asked_to_end: Cell::new(None),
                locals: RefCell::default(),
                label: Label::default(),
                scope: Cell::new(None),
                transit: Transit::new(host as usize),
                packed_alarm: Cell::new(None),
                siblings: Cell::default(),
                wakes: Cell::new(None),
                arrived: Cell::new(false),
                long_runs: Cell::new(0),
                departure: Cell::new(None),
                waits_for_fibers: Cell::new(false),
                probes: Probes::default(),
                cancel_catcher: Cell::new(0),
            },
        }
    }

    /// Puts a new fiber into a vacant block.
    pub(super) fn occupy(&self, coroutine: FiberCoroutine, stack: StackBounds, family: FamilyRef) {
        debug_assert_eq!(self.state.get(), RunState::Vacant);
        debug_assert!(!self.granted.get(), "the last tenant has used its place among the ops");
        // SAFETY: I3. The block is vacant, so no coroutine runs in it and nothing refers to it.
        unsafe { *self.coroutine.get() = Some(coroutine) };
        self.budget.refill();
        self.cancelled.set(false);
        self.yielder.set(std::ptr::null());
        self.cold.root.set(false);
        self.cold.asked_to_end.set(None);
        self.cold.scope.set(None);
        self.cold.regions.reset();
        self.cold.arrived.set(false);
        self.cold.long_runs.set(0);
        self.cold.departure.set(None);
        self.cold.wakes.set(None);
        self.refusals.reset();
        self.in_libc_call.set(false);
        self.in_program.set(false);
        self.thread_word.set(std::ptr::null());
        self.hazards.reset();
        self.unwinding.set(Unwinding::No);
        self.cold.stack.set(stack);
        family.add_member();
        self.thread_pointer.set(family.thread_pointer());
        self.cold.family.set(Some(family));
        self.state.set(RunState::Runnable);
    }

    /// The fibers with which it shares thread-locals.
    #[inline]
    pub fn family(&self) -> FamilyRef {
        self.cold.family.get().expect("a started fiber")
    }

    /// Takes the fiber, which has ended, out of its family.
    pub(super) fn leave_family(&self) -> FamilyRef {
        self.cold.family.take().expect("a fiber that has ended was started")
    }

    /// Frees the block of a fiber that has ended. Late messages no longer find it.
    pub(super) fn vacate(&self) {
        debug_assert!(self.cold.meta.get().is_none(), "the body has taken its name back");
        self.generation.set(self.generation.get().wrapping_add(1));
        self.state.set(RunState::Vacant);
    }

    /// Is called first on the fiber's own stack.
    pub(super) fn entered(&self, yielder: &Yielder<(), ()>) {
        self.yielder.set(yielder);
    }

    /// Whether it has run.
    pub(super) fn has_begun(&self) -> bool {
        !self.yielder.get().is_null()
    }

    pub fn id(&self) -> FiberId {
        FiberId { index: self.index, generation: self.generation.get() }
    }

    #[inline]
    pub(crate) fn state(&self) -> RunState {
        self.state.get()
    }

    #[inline]
    pub(super) fn set_state(&self, state: RunState) {
        self.state.set(state);
    }

    /// When it was last suspended, by its worker's coarse clock.
    pub(super) fn since_ns(&self) -> u64 {
        self.since_ns.get()
    }

    #[inline(always)]
    pub(super) fn set_since_ns(&self, ns: u64) {
        self.since_ns.set(ns);
    }

    /// What is known of its unwinding. [`Worker`](super::worker::Worker) knows how certain that is.
    #[inline]
    pub(super) fn unwinding(&self) -> Unwinding {
        self.unwinding.get()
    }

    #[inline]
    pub fn set_unwinding(&self, unwinding: Unwinding) {
        self.unwinding.set(unwinding);
    }

    pub fn stack(&self) -> StackBounds {
        self.cold.stack.get()
    }

    pub fn locals(&self) -> &RefCell<Locals> {
        &self.cold.locals
    }
}

// The budget of inline calls, the timer of a wait, and the place among the ops in flight.
impl Fiber {
    #[inline(always)]
    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Takes a call of libc's from the budget. False if it was the last one.
    #[inline(always)]
    pub fn spend_of_libc(&self) -> bool {
        self.budget.spend_of_libc()
    }

    /// Takes an inline call into the kernel from the budget. False if nothing was left for it.
    #[inline]
    pub fn spend_inline(&self) -> bool {
        self.budget.spend_inline(true)
    }

    /// The same while other fibers are ready, of which each waits for the calls of this one.
    #[inline]
    pub fn spend_inline_among_others(&self) -> bool {
        self.budget.spend_inline(false)
    }

    /// Notes the timer that ends the wait which begins next.
    #[inline]
    pub(super) fn set_wait_alarm(&self, alarm: TimerId) {
        let before = self.wait_alarm.replace(Some(alarm));
        debug_assert!(before.is_none(), "a fiber is in one wait at a time");
    }

    /// Returns the timer of the wait, to be taken back.
    #[inline]
    pub(super) fn take_wait_alarm(&self) -> Option<TimerId> {
        self.wait_alarm.take()
    }

    /// Notes when the timer of the wait is due, which was taken back for a move.
    pub(super) fn pack_wait_alarm(&self, at: Instant) {
        self.cold.packed_alarm.set(Some(at));
    }

    pub(super) fn take_packed_alarm(&self) -> Option<Instant> {
        self.cold.packed_alarm.take()
    }

    pub(super) fn grant(&self) {
        self.granted.set(true);
    }

    pub(super) fn take_grant(&self) -> bool {
        self.granted.replace(false)
    }
}

// Its name, its scope, and what it waits for.
impl Fiber {
    /// The name and identity. `None` before and after the body runs.
    pub fn meta(&self) -> Option<&Meta> {
        // SAFETY: I2. By the contract of `set_meta` it exists until it is cleared.
        self.cold.meta.get().map(|meta| unsafe { meta.as_ref() })
    }

    /// Sets the name and identity.
    ///
    /// # Safety
    ///
    /// I2: the caller clears it (`None`) before the value goes away.
    pub(crate) unsafe fn set_meta(&self, meta: Option<NonNull<Meta>>) {
        if let Some(before) = self.meta() {
            self.cold.label.clear(before);
        }
        self.cold.meta.set(meta);
        if let Some(meta) = self.meta() {
            self.cold.label.set(meta);
        }
    }

    pub(super) fn is_root(&self) -> bool {
        self.cold.root.get()
    }

    pub(super) fn set_root(&self) {
        self.cold.root.set(true);
    }

    pub(super) fn scope(&self) -> Option<ScopeOrigin> {
        self.cold.scope.get()
    }

    pub(super) fn set_scope(&self, scope: ScopeOrigin) {
        self.cold.scope.set(Some(scope));
    }

    /// The object that the fiber waits for, if it is known.
    pub(super) fn target(&self) -> Option<Target<'_>> {
        // It lies in the suspended frame, which takes it back before it continues (`set_target`).
        self.target.get().filter(|_| matches!(self.state.get(), RunState::Waiting(_)))
    }

    /// Sets the object that the fiber waits for next.
    ///
    /// # Safety
    ///
    /// I2: it stays in place until the caller takes it back (`None`), on this fiber.
    #[inline(always)]
    pub(super) unsafe fn set_target(&self, target: Option<Target<'_>>) {
        // SAFETY: I2. Only the lifetime changes, and the contract covers it.
        let target = target
            .map(|target| unsafe { std::mem::transmute::<Target<'_>, Target<'static>>(target) });
        self.target.set(target);
    }
}
