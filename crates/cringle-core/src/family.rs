//! Families: the fibers that share one block of thread-locals.
//!
//! A fiber that is started with `Send` bounds founds a family, and the fibers that it starts with
//! `spawn_local` belong to it, and theirs: what is not `Send` may be passed among them, as within a
//! thread. Where thread-locals are [shared](thread_locals::ThreadLocals::Shared), all fibers of a
//! worker are one family. A family belongs to one worker at a time (**I3**), and moves to another
//! one as a whole.

use super::fiber::{FiberRef, ReadyQueue, Siblings};
use super::unwind_count::UnwindCount;
use super::worker::Exchange;
use cringle_tls::{self as thread_locals, Block};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

/// See the module.
pub struct Family {
    locals: Locals,
    /// The fibers that have started and not ended, and the [tickets](Ticket).
    members: Cell<u32>,
    /// The first member has begun.
    has_begun: Cell<bool>,
    unwinding: UnwindCount,
    /// What keeps it on its worker.
    pins: Cell<u32>,
    /// The worker that its thread-locals know.
    known: Cell<u32>,
    /// The member that holds the others back: see `worker/families.rs`.
    holder: Cell<Option<FiberRef>>,
    /// The ready members that are held back, or all ready members while the family moves.
    held: ReadyQueue,
    /// The members, where families move.
    siblings: Siblings,
    /// The turn of its host in which it was last decided whether it leaves, and the decision.
    verdict: Cell<Option<(u64, bool)>>,
    exchange: Exchange,
    /// Gets the thread-locals at the end.
    keeper: Option<Arc<dyn Keeper>>,
}

/// Whose thread-locals the members use.
enum Locals {
    /// The worker's: the thread-locals of the thread that it runs on.
    Workers,
    /// Those of the thread that called `run`. Its thread pointer.
    Callers(usize),
    /// Their own.
    Own(Block),
}

/// A family of the current worker. It may be copied: the family outlives its members.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FamilyRef(NonNull<Family>);

impl std::ops::Deref for FamilyRef {
    type Target = Family;

    #[inline(always)]
    fn deref(&self) -> &Family {
        // SAFETY: I2, I3. A family is freed after its last member, references are used by its host
        // (the type is not Send), and everything inside is a cell.
        unsafe { self.0.as_ref() }
    }
}

impl FamilyRef {
    pub(super) fn of(family: &Family) -> FamilyRef {
        FamilyRef(NonNull::from(family))
    }

    /// Names the family on its way to its worker.
    pub fn on_worker(self) -> SentFamily {
        SentFamily(self)
    }

    /// Takes the family back from its members.
    ///
    /// # Safety
    ///
    /// I2: it was in a box that was leaked, and has no members.
    pub(super) unsafe fn into_box(self) -> Box<Family> {
        // SAFETY: I2, by the contract.
        unsafe { Box::from_raw(self.0.as_ptr()) }
    }
}

/// A family on the way to its worker, through other threads. They do not touch it.
pub struct SentFamily(FamilyRef);

// SAFETY: I3. It is opened on the worker of the family.
unsafe impl Send for SentFamily {}

impl SentFamily {
    /// Returns the family. Called on its worker.
    pub(super) fn open(&self) -> FamilyRef {
        self.0
    }
}

/// The family of a fiber that is not started yet.
pub enum FamilyChoice {
    /// One of its own.
    Own,
    /// One of the worker that it is sent to.
    Join(SentFamily),
    /// One of its own, with thread-locals that are known before it starts.
    Reserved(Reserved),
}

/// Thread-locals of a fiber that is not started yet. It may go to any worker.
pub struct Reserved {
    block: Cell<Option<Block>>,
    keeper: Arc<dyn Keeper>,
}

impl Reserved {
    pub fn new(block: Block, keeper: Arc<dyn Keeper>) -> Reserved {
        Reserved { block: Cell::new(Some(block)), keeper }
    }

    /// Returns the block of a fiber that will not start.
    pub fn cancel(self) -> Block {
        self.block.into_inner().expect("a fiber that has not started")
    }
}

impl Reserved {
    /// Makes the family, when the fiber starts.
    pub(super) fn open(&self) -> FamilyRef {
        let block = self.block.take().expect("a fiber starts once");
        let mut family = Family::with_block(block);
        family.keeper = Some(Arc::clone(&self.keeper));
        FamilyRef::of(Box::leak(Box::new(family)))
    }
}

/// What owns the thread-locals of a family whose name for them outlives it, as the handle of a
/// thread does.
pub trait Keeper: Send + Sync {
    /// Calls `run`, which calls the destructors of the thread-locals, as often as it does not
    /// return by itself.
    fn run_destructors(&self, run: &mut dyn FnMut());

    /// The family has ended, and its thread-locals are as new. They are returned if the worker may
    /// use them for another family now. Is called by the scheduler, beside any fiber.
    fn take_back(&self, block: Block) -> Option<Block>;
}

/// Keeps a family and its thread-locals, on its worker, for a fiber that joins it there later. That
/// fiber drops it.
pub struct Ticket(FamilyRef);

impl Ticket {
    pub fn new(family: FamilyRef) -> Ticket {
        family.add_member();
        family.pin();
        Ticket(family)
    }

    pub fn family(&self) -> FamilyRef {
        self.0
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.unpin();
        let is_last = self.0.remove_member();
        debug_assert!(!is_last, "a member drops it, whose own end releases the thread-locals");
    }
}

impl Family {
    /// The family of all fibers of a worker.
    pub(super) fn of_worker() -> Family {
        Family::with(Locals::Workers, UnwindCount::of_thread())
    }

    /// The family of `run`'s closure, which uses the thread-locals of the calling thread.
    pub(super) fn of_caller() -> Family {
        Family::with(Locals::Callers(thread_locals::current()), UnwindCount::of_thread())
    }

    /// A family with thread-locals of its own.
    pub(super) fn with_block(block: Block) -> Family {
        Family::with(Locals::Own(block), UnwindCount::default())
    }

    /// Returns the family for another founder, unless its keeper takes its thread-locals.
    pub(super) fn after_keeper(mut self: Box<Family>) -> Option<Box<Family>> {
        let Some(keeper) = self.keeper.take() else { return Some(self) };
        let block = self.into_block().expect("a family with a keeper has a block");
        keeper.take_back(block).map(|block| Box::new(Family::with_block(block)))
    }

    /// Returns the block of a family that has no members.
    pub(super) fn into_block(self) -> Option<Block> {
        match self.locals {
            Locals::Own(block) => Some(block),
            Locals::Workers | Locals::Callers(_) => None,
        }
    }

    fn with(locals: Locals, unwinding: UnwindCount) -> Family {
        Family {
            locals,
            members: Cell::new(0),
            has_begun: Cell::new(false),
            unwinding,
            pins: Cell::new(0),
            known: Cell::new(u32::MAX),
            holder: Cell::new(None),
            held: ReadyQueue::default(),
            siblings: Siblings::default(),
            verdict: Cell::new(None),
            exchange: Exchange::default(),
            keeper: None,
        }
    }

    /// What the thread pointer is while a member runs; 0 if it stays as it is.
    #[inline]
    pub(super) fn thread_pointer(&self) -> usize {
        match &self.locals {
            Locals::Workers => 0,
            Locals::Callers(thread_pointer) => *thread_pointer,
            Locals::Own(block) => block.thread_pointer(),
        }
    }

    #[inline]
    pub(super) fn members(&self) -> u32 {
        self.members.get()
    }

    pub(super) fn add_member(&self) {
        self.members.set(self.members.get() + 1);
    }

    /// Returns whether it was the last.
    pub(super) fn remove_member(&self) -> bool {
        self.members.set(self.members.get() - 1);
        self.members.get() == 0
    }

    /// Keeps the family on its worker until [`unpin`](Self::unpin).
    pub fn pin(&self) {
        self.pins.set(self.pins.get() + 1);
    }

    pub fn unpin(&self) {
        self.pins.set(self.pins.get() - 1);
    }

    /// Calls `f`, which does not unwind, with the family pinned.
    pub fn while_pinned<R>(&self, f: impl FnOnce() -> R) -> R {
        self.pin();
        let result = f();
        self.unpin();
        result
    }

    /// Notes the worker that its thread-locals know. False if they know that one already.
    pub(super) fn learn(&self, worker: u32) -> bool {
        self.known.replace(worker) != worker
    }

    /// Whether its thread-locals are its own, and end with it.
    pub fn has_own_locals(&self) -> bool {
        matches!(self.locals, Locals::Own(_))
    }

    /// Whether the family may continue on another worker, unless a member prevents that.
    #[inline]
    pub(super) fn may_move(&self) -> bool {
        self.has_own_locals()
            && self.pins.get() == 0
            && self.has_begun.get()
            && self.holder.get().is_none()
    }

    /// Its members, where families move.
    pub(super) fn siblings(&self) -> &Siblings {
        &self.siblings
    }

    /// What was decided in this turn of its host.
    pub(super) fn verdict(&self, turn: u64) -> Option<bool> {
        self.verdict.get().filter(|&(of, _)| of == turn).map(|(_, leaves)| leaves)
    }

    pub(super) fn set_verdict(&self, turn: u64, leaves: bool) {
        self.verdict.set(Some((turn, leaves)));
    }

    /// Forgets it, because another worker counts other turns.
    pub(super) fn clear_verdict(&self) {
        self.verdict.set(None);
    }

    /// What its members have exchanged with their peers.
    #[inline(always)]
    pub(super) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    #[inline(always)]
    pub(super) fn unwinding(&self) -> &UnwindCount {
        &self.unwinding
    }

    /// Is called first by each member. The first one calls `set_up`, and initialises the block.
    ///
    /// # Safety
    ///
    /// I14: the caller is a member.
    pub(super) unsafe fn enter(&self, set_up: impl FnOnce()) {
        if matches!(self.locals, Locals::Workers) || self.has_begun.replace(true) {
            return;
        }
        set_up();
        if let Locals::Own(block) = &self.locals {
            // SAFETY: I14. The caller runs on the block.
            unsafe { block.begin() };
        }
    }

    /// Whether the calling fiber is the last member, and thread-locals have destructors to run.
    ///
    /// # Safety
    ///
    /// I14: the caller is a member.
    #[inline]
    pub(super) unsafe fn has_destructors(&self) -> bool {
        // SAFETY: I14. The caller runs on the block.
        self.own_block_of_last().is_some_and(|block| unsafe { block.has_destructors() })
    }

    /// Runs the destructors of the thread-locals if the calling fiber is the last member, as a
    /// thread does at its end.
    ///
    /// # Safety
    ///
    /// I14: the caller is a member.
    pub unsafe fn run_destructors(&self) {
        let Some(block) = self.own_block_of_last() else { return };
        // SAFETY: I14. The caller runs on the block.
        let mut run = || unsafe { block.run_destructors() };
        match &self.keeper {
            Some(keeper) => keeper.run_destructors(&mut run),
            None => run(),
        }
    }

    /// Releases what libc keeps of the family, if the calling fiber is the last member.
    ///
    /// # Safety
    ///
    /// I14: the caller is a member, and the last code to run on the block.
    #[inline]
    pub(super) unsafe fn release(&self) {
        if let Some(block) = self.own_block_of_last() {
            // SAFETY: I14. The caller runs on the block.
            unsafe { block.release() };
        }
    }

    fn own_block_of_last(&self) -> Option<&Block> {
        match (&self.locals, self.members.get()) {
            (Locals::Own(block), 1) => Some(block),
            _ => None,
        }
    }

    /// Prepares a family whose last member has ended for the next founder.
    pub(super) fn reset(&self) {
        debug_assert!(self.members.get() == 0 && self.holder.get().is_none());
        self.has_begun.set(false);
        self.pins.set(0);
        self.clear_verdict();
        self.unwinding.begin_era();
        if let Locals::Own(block) = &self.locals {
            // SAFETY: I14. The last member has ended, so no code runs on the block.
            unsafe { block.reset() };
        }
    }

    pub(super) fn holder(&self) -> Option<FiberRef> {
        self.holder.get()
    }

    pub(super) fn set_holder(&self, holder: Option<FiberRef>) {
        self.holder.set(holder);
    }

    /// The members that are held back or move, in the order in which they became ready.
    pub(super) fn held(&self) -> &ReadyQueue {
        &self.held
    }
}
