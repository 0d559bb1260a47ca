//! The blocks of a worker's fibers, by index.

use crate::runtime::fiber::{Fiber, FiberId, FiberRef, RunState};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

/// The blocks of a worker's fibers. A block is reused, and freed only with the table (**I2**).
pub(super) struct FiberTable {
    /// The worker, and the low bits of an index that name it.
    home: u32,
    home_bits: u32,
    blocks: RefCell<Blocks>,
    /// Started fibers that have not ended.
    occupied: Cell<u32>,
}

#[derive(Default)]
struct Blocks {
    all: Vec<NonNull<Fiber>>,
    vacant: Vec<u32>,
}

impl FiberTable {
    pub(super) fn new(home: u32, home_bits: u32) -> FiberTable {
        FiberTable { home, home_bits, blocks: RefCell::default(), occupied: Cell::new(0) }
    }

    /// The number of fibers that have started and not ended.
    #[inline]
    pub(super) fn occupied(&self) -> u32 {
        self.occupied.get()
    }

    /// Returns a vacant block for the next fiber. Calls `added` with the position and the address
    /// of a block that is new.
    pub(super) fn vacancy(&self, added: impl FnOnce(usize, NonNull<Fiber>)) -> FiberRef {
        self.occupied.set(self.occupied.get() + 1);
        let Blocks { all, vacant } = &mut *self.blocks.borrow_mut();
        let position = match vacant.pop() {
            Some(position) => position as usize,
            None => {
                let position = all.len();
                let index = (position << self.home_bits) | self.home as usize;
                let index = u32::try_from(index).expect("fewer than 2³² fibers in a runtime");
                let block = NonNull::from(Box::leak(Box::new(Fiber::new(index, self.home))));
                added(position, block);
                all.push(block);
                position
            }
        };
        FiberRef::new(all[position])
    }

    /// Takes back the block of a fiber that has ended.
    pub(super) fn release(&self, fiber: FiberRef) {
        debug_assert_eq!(fiber.state(), RunState::Vacant, "a fiber that has ended");
        self.occupied.set(self.occupied.get() - 1);
        self.blocks.borrow_mut().vacant.push(fiber.id().index >> self.home_bits);
    }

    /// Finds a fiber of this worker; `None` if it has ended (**I9**).
    pub(super) fn get(&self, id: FiberId) -> Option<FiberRef> {
        let position = (id.index >> self.home_bits) as usize;
        let block = FiberRef::new(*self.blocks.borrow().all.get(position)?);
        (block.id() == id).then_some(block)
    }

    /// The block at this position; `None` behind the last one.
    pub(super) fn at(&self, position: usize) -> Option<FiberRef> {
        self.blocks.borrow().all.get(position).map(|&block| FiberRef::new(block))
    }

    /// All fibers that have started and not ended.
    pub(super) fn fibers(&self) -> Vec<FiberRef> {
        let blocks = self.blocks.borrow();
        let fibers = blocks.all.iter().map(|&block| FiberRef::new(block));
        fibers.filter(|fiber| fiber.state() != RunState::Vacant).collect()
    }
}

impl Drop for FiberTable {
    fn drop(&mut self) {
        if self.occupied.get() > 0 {
            // The kernel may write to their frames, and other threads may borrow from them (I1,
            // I2).
            crate::sys::report(format_args!("a worker ended before its fibers; aborting"));
            std::process::abort();
        }
        for block in self.blocks.get_mut().all.drain(..) {
            // SAFETY: I2. The worker ends after its last fiber, and only its fibers' code refers to
            // blocks.
            drop(unsafe { Box::from_raw(block.as_ptr()) });
        }
    }
}
