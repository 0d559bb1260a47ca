//! The families of a worker's fibers, and their thread-locals.
//!
//! With [`ThreadLocals::Private`] a family that ends is kept with its block for the next founder.
//! Up to [`KEPT`] stay with the worker. The blocks of the others go to a pool of the process, from
//! which every worker takes: blocks are not freed (see [`thread_locals`]).
//!
//! # Holding others back
//!
//! A thread that waits in a call of libc runs nothing else. Code that knows nothing of fibers
//! relies on that: `parking_lot` queues a thread-local that exists once a thread. So while a member
//! of a family waits in an interposed call, no other member runs ([`Current::hold_family`]).

use super::{Current, Here, Host};
use crate::family::{Family, FamilyRef};
use crate::fiber::FiberRef;
use crate::foreign;
use cringle_sys::fork::Section;
use cringle_sys::lock::Mutex;
use cringle_tls::{self as thread_locals, Block, ThreadLocals, ThreadsCache};
use std::cell::{Cell, RefCell};
use std::io;

/// The families without members that a worker keeps for the next founders.
const KEPT: usize = 128;

/// The blocks that no worker keeps.
static POOL: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// See the module.
pub struct Families {
    mode: ThreadLocals,
    /// The family of all fibers, or of `run`'s closure. It never ends.
    first: Box<Family>,
    /// The thread pointer of the worker's thread itself.
    threads_own: usize,
    /// What the allocator keeps for that thread.
    cache: Option<ThreadsCache>,
    #[allow(clippy::vec_box, reason = "members refer to a family by its address")]
    vacant: RefCell<Vec<Box<Family>>>,
    /// For fibers that fail because there is no memory. This family's allocator has some memory,
    /// and another family's may have none: so it is always the same family.
    reserve: Cell<Option<Box<Family>>>,
    reserved: Cell<Option<FamilyRef>>,
    /// The fibers that hold others back, and the one that is about to leave.
    holders: Cell<u32>,
    /// The host of the fiber that is about to leave.
    host: Cell<Option<Host>>,
}

impl Families {
    /// Is called on the worker's thread.
    ///
    /// # Errors
    ///
    /// If there is no memory for a block.
    pub fn new(mode: ThreadLocals) -> io::Result<Families> {
        let first = match mode {
            ThreadLocals::Shared => Family::of_worker(),
            ThreadLocals::Private => Family::of_caller(),
        };
        let threads_own = thread_locals::threads_own();
        let is_private = mode == ThreadLocals::Private;
        let families = Families {
            mode,
            first: Box::new(first),
            threads_own,
            cache: is_private.then(|| ThreadsCache::of_thread(threads_own)).flatten(),
            vacant: RefCell::default(),
            reserve: Cell::new(None),
            reserved: Cell::new(None),
            holders: Cell::new(0),
            host: Cell::new(None),
        };
        if is_private {
            families.fill_reserve()?;
        }
        Ok(families)
    }

    /// The count of the suspended fibers that unwind, where the worker itself can tell that none
    /// does any more.
    #[inline(always)]
    pub(super) fn unwinding(&self) -> u32 {
        match self.mode {
            ThreadLocals::Shared => self.first.unwinding().get(),
            ThreadLocals::Private => 0,
        }
    }

    /// Begins a new era in the family whose thread-locals the worker uses, if no fiber unwinds.
    pub(super) fn check_era(&self) {
        if !std::thread::panicking() {
            self.first.unwinding().begin_era();
        }
    }

    /// Whose thread-locals fibers have.
    pub(crate) fn mode(&self) -> ThreadLocals {
        self.mode
    }

    /// Makes the caller's block one of the worker's thread, where fibers have blocks.
    pub(super) fn enter_block(&self) {
        if self.mode == ThreadLocals::Private {
            self.lend_cache(thread_locals::current());
            thread_locals::note_thread(self.threads_own);
        }
    }

    /// Makes a block use the allocator's cache of the worker's thread.
    fn lend_cache(&self, block: usize) {
        if let Some(cache) = self.cache.filter(|_| block != self.threads_own) {
            // SAFETY: I14. The block runs on the worker's thread now, which is the caller's.
            unsafe { cache.lend(block) };
        }
    }

    /// Takes a block for code of the worker itself.
    fn take_own_block(&self) -> io::Result<Block> {
        let block = take_block()?;
        self.lend_cache(block.thread_pointer());
        Ok(block)
    }

    /// Returns the block for this worker's scheduler, if that shares its thread with `run`'s
    /// closure, which uses the block of the thread.
    pub fn scheduler_block(&self) -> io::Result<SchedulerBlock> {
        Ok(SchedulerBlock(match self.mode {
            ThreadLocals::Shared => None,
            ThreadLocals::Private => Some(self.take_own_block()?),
        }))
    }

    /// Whether the fiber uses the thread-locals of the thread that called `run`, and the scheduler
    /// does not.
    pub fn are_callers(&self, fiber: FiberRef) -> bool {
        self.mode == ThreadLocals::Private && fiber.family() == self.first()
    }

    /// The family of all fibers, or that of `run`'s closure.
    pub(super) fn first(&self) -> FamilyRef {
        FamilyRef::of(&self.first)
    }

    /// The family of a fiber that fails because there is no memory.
    pub(super) fn reserved(&self) -> FamilyRef {
        self.reserve.take().map_or_else(|| self.first(), |family| FamilyRef::of(Box::leak(family)))
    }

    /// The family of a fiber that is started with `Send` bounds.
    ///
    /// # Errors
    ///
    /// If there is no memory for its thread-locals.
    pub(super) fn found(&self) -> io::Result<FamilyRef> {
        if self.mode == ThreadLocals::Shared {
            return Ok(self.first());
        }
        let vacant = self.vacant.borrow_mut().pop();
        let family = match vacant {
            Some(family) => family,
            None => Box::new(Family::with_block(take_block()?)),
        };
        Ok(FamilyRef::of(Box::leak(family)))
    }

    /// Takes thread-locals for a fiber that starts later, on any worker.
    ///
    /// # Errors
    ///
    /// If there is no memory for them.
    pub fn take_block(&self) -> io::Result<Block> {
        let vacant = self.vacant.borrow_mut().pop();
        vacant.and_then(|family| family.into_block()).map_or_else(take_block, Ok)
    }

    /// Releases the thread-locals of a fiber that has ended, if it was the last of its family.
    pub(super) fn bury(&self, fiber: FiberRef) {
        let family = fiber.leave_family();
        if family.remove_member() && self.mode == ThreadLocals::Private {
            family.reset();
            if family != self.first() {
                // SAFETY: I2. It came from `found` or was reserved, and has no member.
                let family = unsafe { family.into_box() };
                if let Some(family) = family.after_keeper() {
                    self.keep(family);
                }
            }
        }
    }

    /// Puts a fiber that is about to run aside, if another member of its family holds it back.
    #[inline(always)]
    pub(super) fn hold_back(&self, fiber: FiberRef) -> bool {
        self.any_is_held() && hold_back(fiber)
    }

    /// Notes the host of the running fiber, which leaves by its next switch. The scheduler looks,
    /// as if the fiber held others back.
    pub(super) fn lend_to(&self, host: Host) {
        self.host.set(Some(host));
        self.holders.set(self.holders.get() + 1);
    }

    pub(super) fn take_host(&self) -> Option<Host> {
        let host = self.host.take()?;
        self.holders.set(self.holders.get() - 1);
        Some(host)
    }

    /// Whether a fiber holds other members of its family back, or leaves.
    #[inline(always)]
    pub(super) fn any_is_held(&self) -> bool {
        self.holders.get() > 0
    }

    fn fill_reserve(&self) -> io::Result<()> {
        let block = self.take_own_block()?;
        // SAFETY: I14. The block is no family's yet.
        unsafe {
            thread_locals::on_block(block.thread_pointer(), || {
                block.begin();
                drop(std::hint::black_box(Box::new(0u8)));
            });
            // No more: an allocator of the program's may refer to the block now.
            block.withdraw_cache();
        }
        let family = Box::new(Family::with_block(block));
        self.reserved.set(Some(FamilyRef::of(&family)));
        self.reserve.set(Some(family));
        Ok(())
    }

    fn keep(&self, family: Box<Family>) {
        if self.reserved.get() == Some(FamilyRef::of(&family)) {
            return self.reserve.set(Some(family));
        }
        let mut vacant = self.vacant.borrow_mut();
        if vacant.len() < KEPT {
            return vacant.push(family);
        }
        with_pool(|pool| pool.extend(family.into_block()));
    }
}

impl Drop for Families {
    fn drop(&mut self) {
        // Without blocks, no handler keeps a fork away from the pool.
        if self.mode == ThreadLocals::Shared {
            return;
        }
        let families = self.vacant.get_mut().drain(..).chain(self.reserve.take());
        let blocks = families.filter_map(|family| family.into_block());
        with_pool(|pool| pool.extend(blocks));
    }
}

/// Gives up a block that no code runs on, from any thread.
pub fn release_block(block: Block) {
    with_pool(|pool| pool.push(block));
}

/// Takes a block that no code runs on, on any thread.
///
/// # Errors
///
/// If there is no memory for one.
pub fn take_block() -> io::Result<Block> {
    let Some(block) = with_pool(Vec::pop) else { return Block::new() };
    block.after_fork();
    Ok(block)
}

fn with_pool<R>(f: impl FnOnce(&mut Vec<Block>) -> R) -> R {
    let _section = Section::enter();
    f(&mut POOL.lock())
}

/// A block for code that is no fiber's: the scheduler of the caller's thread.
pub struct SchedulerBlock(Option<Block>);

impl SchedulerBlock {
    /// Calls `f` on a block of its own, if fibers have such.
    pub fn call<R>(&self, f: impl FnOnce() -> R) -> R {
        match &self.0 {
            None => f(),
            // SAFETY: I14. The block is no family's, and its code has returned when this does.
            Some(block) => unsafe {
                thread_locals::on_block(block.thread_pointer(), || {
                    block.begin();
                    let result = f();
                    block.run_destructors();
                    block.release();
                    result
                })
            },
        }
    }
}

impl Drop for SchedulerBlock {
    fn drop(&mut self) {
        if let Some(block) = self.0.take() {
            // SAFETY: I14. The code on the block has returned.
            unsafe { block.reset() };
            with_pool(|pool| pool.push(block));
        }
    }
}

// The end of a family. Destructors may wait.
impl Current {
    /// Runs the destructors of thread-locals, if the calling fiber is the last of its family.
    #[inline]
    pub(crate) fn end_thread_locals(self) {
        if self.worker.families.mode == ThreadLocals::Shared {
            return;
        }
        // SAFETY: I14. The caller is a member.
        if unsafe { self.fiber.family().has_destructors() } {
            self.run_destructors();
        }
    }

    #[cold]
    fn run_destructors(self) {
        // SAFETY: I14. The caller is a member.
        let run = || unsafe { self.fiber.family().run_destructors() };
        if let Err(_payload) = foreign::call(run) {
            // As std does. The payload is not dropped, because that may panic too.
            cringle_sys::report(format_args!(
                "the destructor of a thread-local panicked; aborting"
            ));
            std::process::abort();
        }
    }

    /// Is called last on a fiber's stack.
    #[inline]
    pub(super) fn leave_family(self) {
        // What was dropped last may have made thread-locals again.
        self.end_thread_locals();
        if self.worker.families.mode == ThreadLocals::Private {
            // SAFETY: I14. The caller is a member, whose code has ended.
            unsafe { self.fiber.family().release() };
        }
    }
}

// Holding others back.
impl Current {
    /// Holds the other members of the fiber's family back until the result is dropped. The caller
    /// is the fiber.
    pub fn hold_family(self) -> HeldFamily {
        let family = self.fiber.family();
        let is_needed = self.worker.families.mode == ThreadLocals::Private
            && family.members() > 1
            && family.holder().is_none();
        if is_needed {
            family.set_holder(Some(self.fiber));
            self.worker.families.holders.set(self.worker.families.holders.get() + 1);
        }
        HeldFamily { worker: self.worker, family: is_needed.then_some(family) }
    }
}

#[cold]
#[inline(never)]
fn hold_back(fiber: FiberRef) -> bool {
    let family = fiber.family();
    let is_held = family.holder().is_some_and(|holder| holder != fiber);
    if is_held {
        family.held().push(fiber);
    }
    is_held
}

/// While it exists, the other members of a family do not run.
pub struct HeldFamily {
    worker: Here,
    family: Option<FamilyRef>,
}

impl Drop for HeldFamily {
    fn drop(&mut self) {
        let Some(family) = self.family else { return };
        let holders = &self.worker.families.holders;
        holders.set(holders.get() - 1);
        family.set_holder(None);
        let mut next = family.held().take_all();
        while let Some(fiber) = next {
            next = fiber.unlink();
            self.worker.schedule.ready().push(fiber);
        }
    }
}
