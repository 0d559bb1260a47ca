//! The blocks of a worker's fibers.

use crate::runtime::fiber::{Fiber, FiberId, FiberRef, State};
use std::ptr::NonNull;

/// The blocks of this worker's fibers.
#[derive(Default)]
pub(super) struct FiberTable {
    blocks: Vec<NonNull<Fiber>>,
    vacant: Vec<u32>,
    pub(super) occupied: usize,
}

impl FiberTable {
    pub(super) fn vacancy(&mut self) -> FiberRef {
        self.occupied += 1;
        let index = match self.vacant.pop() {
            Some(index) => index as usize,
            None => {
                let index = self.blocks.len();
                let number = u32::try_from(index).expect("fewer than 2³² fibers on a worker");
                self.blocks.push(NonNull::from(Box::leak(Box::new(Fiber::new(number)))));
                index
            }
        };
        FiberRef::new(self.blocks[index])
    }

    pub(super) fn release(&mut self, index: u32) {
        self.occupied -= 1;
        self.vacant.push(index);
    }

    pub(super) fn get(&self, id: FiberId) -> Option<FiberRef> {
        let block = FiberRef::new(*self.blocks.get(id.index as usize)?);
        (block.id() == id).then_some(block)
    }

    pub(super) fn occupied(&self) -> impl Iterator<Item = FiberRef> {
        let blocks = self.blocks.iter().map(|&block| FiberRef::new(block));
        blocks.filter(|block| block.state() != State::Vacant)
    }
}

impl Drop for FiberTable {
    fn drop(&mut self) {
        if self.occupied > 0 {
            // Their frames may be written to by the kernel, or borrowed by other threads.
            crate::sys::report(format_args!("a worker ended before its fibers; aborting"));
            std::process::abort();
        }
        for block in self.blocks.drain(..) {
            // SAFETY: I2. The worker ends after its last fiber, and nothing else refers to blocks.
            drop(unsafe { Box::from_raw(block.as_ptr()) });
        }
    }
}
