//! The blocks of a worker's fibers, by index.

use crate::runtime::fiber::{Fiber, FiberId, FiberRef, RunState};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

/// The blocks of a worker's fibers. A block is reused, and freed only with the table (**I2**).
#[derive(Default)]
pub(super) struct FiberTable {
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
    /// The number of fibers that have started and not ended.
    #[inline]
    pub(super) fn occupied(&self) -> u32 {
        self.occupied.get()
    }

    /// Returns a vacant block for the next fiber.
    pub(super) fn vacancy(&self) -> FiberRef {
        self.occupied.set(self.occupied.get() + 1);
        let Blocks { all, vacant } = &mut *self.blocks.borrow_mut();
        let index = match vacant.pop() {
            Some(index) => index as usize,
            None => {
                let index = all.len();
                let number = u32::try_from(index).expect("fewer than 2³² fibers on a worker");
                all.push(NonNull::from(Box::leak(Box::new(Fiber::new(number)))));
                index
            }
        };
        FiberRef::new(all[index])
    }

    /// Takes back the block of a fiber that has ended.
    pub(super) fn release(&self, fiber: FiberRef) {
        debug_assert_eq!(fiber.state(), RunState::Vacant, "a fiber that has ended");
        self.occupied.set(self.occupied.get() - 1);
        self.blocks.borrow_mut().vacant.push(fiber.id().index);
    }

    /// Finds a fiber; `None` if it has ended (**I9**).
    pub(super) fn get(&self, id: FiberId) -> Option<FiberRef> {
        let block = FiberRef::new(*self.blocks.borrow().all.get(id.index as usize)?);
        (block.id() == id).then_some(block)
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
