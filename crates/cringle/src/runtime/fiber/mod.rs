//! The control block of a started fiber: what its worker knows of it.
//!
//! Blocks are allocated one by one, keep their address, and are reused; a generation number tells
//! a new tenant from an old one, so that a message that comes late wakes nobody (**I9**). All of it
//! is touched by the fiber's own worker alone (**I3**).

pub(crate) mod body;
mod budget;
mod ops;
mod probe;
mod ready_queue;
mod unwind;
mod wait;

pub(super) use ops::WaitedOps;
pub(super) use ready_queue::ReadyQueue;
pub(super) use wait::WAIT_WORDS;
pub(crate) use wait::Wait;

use super::cancelled::Reason;
use super::identity::Meta;
use super::label::Label;
use super::region::Regions;
use super::stack::{Stack, StackBounds};
use super::unwinding::Unwinding;
use super::wait_target::{FiberTag, ScopeOrigin, WaitTarget};
use budget::Budget;
use corosensei::{Coroutine, Yielder};
use probe::{Answer, Probe};
use std::any::Any;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Instant;

/// A fiber as other workers name it: by its place and generation, never by address (**I9**).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FiberId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A fiber of the current worker. Copyable, because the block outlives the fiber: a worker frees
/// its blocks when it ends, after its last fiber (**I2**).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FiberRef(NonNull<Fiber>);

impl FiberRef {
    /// As others know it who do not look into it.
    #[inline]
    pub(crate) fn tag(self) -> FiberTag {
        FiberTag::of_block(self.0.as_ptr() as usize, self.generation.get())
    }

    pub(super) fn new(block: NonNull<Fiber>) -> FiberRef {
        FiberRef(block)
    }

    /// As the token that the driver hands back.
    pub(crate) fn token(self) -> crate::driver::Token {
        self.0.cast()
    }

    pub(super) fn from_token(token: crate::driver::Token) -> FiberRef {
        FiberRef(token.cast())
    }
}

impl std::ops::Deref for FiberRef {
    type Target = Fiber;

    #[inline]
    fn deref(&self) -> &Fiber {
        // SAFETY: I2, I3. Blocks are freed only when their worker ends, references to them stay on
        // that worker (the type is not Send), and everything inside is a cell.
        unsafe { self.0.as_ref() }
    }
}

/// What a fiber does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The block is free.
    Vacant,
    /// It is the worker's current fiber, or in the row of those that are ready.
    Runnable,
    /// It waits, and this is for what.
    Waiting(Wait),
}

/// The fiber that a worker runs. Written by the worker alone, and read by others, too: who looks whether it
/// is stuck. (What costs nothing: a plain store.)
#[derive(Default)]
pub(super) struct Running(AtomicPtr<Fiber>);

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

    /// For others: the label of the fiber that runs now, or did a moment ago.
    ///
    /// # Safety
    ///
    /// The worker's blocks stay meanwhile.
    pub(super) unsafe fn label(&self) -> Option<&Label> {
        let block = NonNull::new(self.0.load(Ordering::Relaxed))?;
        // SAFETY: by the contract. Nothing but the label is touched, which any thread may read.
        Some(unsafe { &(*block.as_ptr()).cold.label })
    }
}

type FiberCoroutine = Coroutine<(), (), (), Stack>;

/// See the module.
pub(crate) struct Fiber {
    index: u32,
    generation: Cell<u32>,
    state: Cell<State>,
    /// The fiber after this one in the ready list.
    next: Cell<Option<FiberRef>>,
    /// Touched by the scheduler alone, never from within the fiber.
    coroutine: UnsafeCell<Option<FiberCoroutine>>,
    yielder: Cell<*const Yielder<(), ()>>,
    /// The ops it waits for, while its state is `Waiting(Ops)`.
    ops: Cell<WaitedOps>,
    /// Calls it may still make without suspending before others run.
    budget: Budget,
    /// It was given a place among the ops in flight that it waited for.
    granted: Cell<bool>,
    /// A region that it is in is cancelled, and reaches it.
    cancelled: Cell<bool>,
    /// Ops and waits that were refused because it is cancelled.
    refusals: Cell<u32>,
    /// What is known of its unwinding.
    unwinding: Cell<Unwinding>,
    /// What it is resumed to answer, if it is not resumed to go on.
    probed: Cell<Option<Probe>>,
    /// By its worker's clock: when it was last suspended.
    since_ns: Cell<u64>,
    /// What it waits for, if that has more to say. It lies in the fiber's suspended frame.
    target: Cell<Option<NonNull<dyn WaitTarget>>>,
    cold: Cold,
}

/// What most fibers never touch after their start.
struct Cold {
    /// Name and identity: they lie in the packet that its body shares with its handle.
    meta: Cell<Option<NonNull<Meta>>>,
    stack: Cell<StackBounds>,
    /// It belongs to no scope, and has begun.
    root: Cell<bool>,
    regions: Regions,
    /// When it was cancelled in a wait that does not end at once, while it still is.
    asked_to_end: Cell<Option<Instant>>,
    locals: RefCell<Locals>,
    label: Label,
    scope: Cell<Option<ScopeOrigin>>,
    /// The answer to the last probe.
    answer: RefCell<Answer>,
    /// Where the last cancel that unwound it is caught: the address of that frame.
    cancel_catcher: Cell<usize>,
}

/// A fiber's locals by key, in the order they were made; `None` for one that is being destroyed, or was.
pub(crate) type Locals = Vec<(usize, Option<Rc<dyn Any>>)>;

impl Fiber {
    pub(super) fn new(index: u32) -> Fiber {
        Fiber {
            index,
            generation: Cell::new(0),
            state: Cell::new(State::Vacant),
            next: Cell::new(None),
            coroutine: UnsafeCell::new(None),
            yielder: Cell::new(std::ptr::null()),
            ops: Cell::new(WaitedOps::none()),
            budget: Budget::new(),
            granted: Cell::new(false),
            cancelled: Cell::new(false),
            refusals: Cell::new(0),
            unwinding: Cell::new(Unwinding::No),
            probed: Cell::new(None),
            since_ns: Cell::new(0),
            target: Cell::new(None),
            cold: Cold {
                meta: Cell::default(),
                stack: Cell::default(),
                root: Cell::new(false),
                regions: Regions::new(),
                asked_to_end: Cell::new(None),
                locals: RefCell::default(),
                label: Label::default(),
                scope: Cell::new(None),
                answer: RefCell::default(),
                cancel_catcher: Cell::new(0),
            },
        }
    }

    /// Makes a vacant block a new fiber's.
    pub(super) fn occupy(&self, coroutine: FiberCoroutine, stack: StackBounds) {
        debug_assert_eq!(self.state.get(), State::Vacant);
        // SAFETY: I3. The block is vacant, so no coroutine runs in it and nothing refers to it.
        unsafe { *self.coroutine.get() = Some(coroutine) };
        self.budget.refill();
        self.cancelled.set(false);
        self.yielder.set(std::ptr::null());
        self.cold.root.set(false);
        self.cold.asked_to_end.set(None);
        self.cold.scope.set(None);
        self.cold.regions.reset();
        self.refusals.set(0);
        self.unwinding.set(Unwinding::No);
        self.cold.stack.set(stack);
        self.state.set(State::Runnable);
    }

    /// Runs the fiber until it suspends; its stack, if it ended.
    #[inline(always)]
    pub(super) fn resume(&self) -> Option<Stack> {
        debug_assert_eq!(self.state.get(), State::Runnable);
        // SAFETY: I3. Only the scheduler takes this reference, and it is not in here twice: the
        // fiber is not running now.
        let coroutine = unsafe { &mut *self.coroutine.get() };
        let body = coroutine.as_mut().expect("a started fiber");
        match body.resume(()) {
            corosensei::CoroutineResult::Yield(()) => None,
            corosensei::CoroutineResult::Return(()) => {
                coroutine.take().map(corosensei::Coroutine::into_stack)
            }
        }
    }

    /// The fiber has ended: its block can be another's. Late messages miss it from now on.
    pub(super) fn vacate(&self) {
        self.generation.set(self.generation.get().wrapping_add(1));
        self.state.set(State::Vacant);
    }

    /// Called first on the fiber's own stack.
    pub(super) fn entered(&self, yielder: &Yielder<(), ()>) {
        self.yielder.set(yielder);
    }

    pub(crate) fn id(&self) -> FiberId {
        FiberId { index: self.index, generation: self.generation.get() }
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    #[inline]
    pub(super) fn set_state(&self, state: State) {
        self.state.set(state);
    }

    /// Takes an inline call into the kernel from the budget; false when it is used up.
    #[inline]
    pub(crate) fn spend_inline(&self) -> bool {
        self.budget.spend_inline()
    }

    #[inline(always)]
    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(super) fn grant(&self) {
        self.granted.set(true);
    }

    pub(super) fn take_grant(&self) -> bool {
        self.granted.replace(false)
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        let cancelled = self.cancelled.get();
        debug_assert_eq!(
            cancelled,
            self.regions().is_cancelled(),
            "regions have changed unnoticed"
        );
        cancelled
    }

    /// Finds out anew whether it is cancelled: its regions have changed.
    pub(super) fn update_cancelled(&self) {
        let cancelled = self.cold.regions.is_cancelled();
        self.cancelled.set(cancelled);
        if !cancelled {
            // It was, and has left what was cancelled: no wait of its is asked to end any more.
            self.cold.asked_to_end.set(None);
        }
    }

    /// Why it is cancelled where it is now.
    pub(crate) fn cause(&self) -> Option<Reason> {
        self.cold.regions.cause()
    }

    pub(crate) fn regions(&self) -> &Regions {
        &self.cold.regions
    }

    /// When it was cancelled in the wait that it is in, if it was.
    pub(super) fn asked_to_end(&self) -> Option<Instant> {
        self.cold.asked_to_end.get().filter(|_| matches!(self.state.get(), State::Waiting(_)))
    }

    pub(super) fn set_asked_to_end(&self, at: Option<Instant>) {
        self.cold.asked_to_end.set(at);
    }

    pub(super) fn is_root(&self) -> bool {
        self.cold.root.get()
    }

    pub(super) fn set_root(&self) {
        self.cold.root.set(true);
    }

    /// What a call of this fiber is answered that is refused or given up because it is cancelled.
    #[cold]
    pub(crate) fn cancel_error(&self) -> std::io::Error {
        self.cause().unwrap_or(Reason::Cancelled).error()
    }

    /// Refusals so far, where it is now.
    pub(super) fn refusals(&self) -> u32 {
        self.refusals.get()
    }

    pub(super) fn set_refusals(&self, refusals: u32) {
        self.refusals.set(refusals);
    }

    /// Counts a refusal; the number so far.
    pub(crate) fn count_refusal(&self) -> u32 {
        let refusals = self.refusals.get() + 1;
        self.refusals.set(refusals);
        refusals
    }

    /// What is known of its unwinding; [`Worker`](super::worker::Worker) knows how certain it is.
    #[inline]
    pub(super) fn unwinding(&self) -> Unwinding {
        self.unwinding.get()
    }

    #[inline]
    pub(crate) fn set_unwinding(&self, unwinding: Unwinding) {
        self.unwinding.set(unwinding);
    }

    /// When it was last suspended in a wait, by its worker's clock.
    pub(super) fn since_ns(&self) -> u64 {
        self.since_ns.get()
    }

    #[inline(always)]
    pub(super) fn set_since_ns(&self, ns: u64) {
        self.since_ns.set(ns);
    }

    /// Tells what the fiber will wait for.
    ///
    /// # Safety
    ///
    /// It stays where it is until the caller takes it back (`None`), on this fiber.
    #[inline(always)]
    pub(super) unsafe fn set_target<'a>(&self, target: Option<&'a (dyn WaitTarget + 'a)>) {
        // SAFETY: only the lifetime changes, and the caller vouches for that.
        let target = target.map(|target| unsafe {
            std::mem::transmute::<NonNull<dyn WaitTarget + 'a>, NonNull<dyn WaitTarget>>(
                target.into(),
            )
        });
        self.target.set(target);
    }

    /// What it waits for, if it waits for something that says so.
    pub(super) fn target(&self) -> Option<&dyn WaitTarget> {
        let waits = matches!(self.state.get(), State::Waiting(_));
        // SAFETY: I2. It lies in the frame that waits, which takes it back before it goes on.
        self.target.get().filter(|_| waits).map(|target| unsafe { target.as_ref() })
    }

    pub(super) fn scope(&self) -> Option<ScopeOrigin> {
        self.cold.scope.get()
    }

    pub(super) fn set_scope(&self, scope: ScopeOrigin) {
        self.cold.scope.set(Some(scope));
    }

    /// Its name and identity; `None` before and after its body runs.
    pub(crate) fn meta(&self) -> Option<&Meta> {
        // SAFETY: the body sets the pointer to what it keeps alive, and clears it first.
        self.cold.meta.get().map(|meta| unsafe { meta.as_ref() })
    }

    /// Tells where the fiber's name and identity lie.
    ///
    /// # Safety
    ///
    /// The caller clears it (`None`) before the value goes away.
    pub(crate) unsafe fn set_meta(&self, meta: Option<NonNull<Meta>>) {
        if let Some(before) = self.meta() {
            self.cold.label.clear(before);
        }
        self.cold.meta.set(meta);
        if let Some(meta) = self.meta() {
            self.cold.label.set(meta);
        }
    }

    pub(super) fn stack(&self) -> StackBounds {
        self.cold.stack.get()
    }

    pub(crate) fn locals(&self) -> &RefCell<Locals> {
        &self.cold.locals
    }
}
