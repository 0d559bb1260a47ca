//! The ops that a fiber waits for. Their completions lie in its suspended frame (**I1**).

use super::{Fiber, RunState, Wait};
use cringle_driver::completion::OpState;
use cringle_driver::{Completion, Driver, OpDescription, OpSlot};
use cringle_sys::debug_info::Field;
use std::marker::PhantomData;
use std::mem::offset_of;

/// The addresses of the completions that a fiber waits for: one completion, or an array of slots.
#[derive(Clone, Copy)]
pub(crate) struct WaitedOps {
    first: *const Completion,
    count: usize,
    /// The distance between two completions; 0 if the completion lies in no slot.
    stride: usize,
}

impl WaitedOps {
    pub(super) fn none() -> WaitedOps {
        WaitedOps { first: std::ptr::null(), count: 0, stride: 0 }
    }

    #[inline]
    pub(crate) fn one(completion: &Completion) -> WaitedOps {
        WaitedOps { first: completion, count: 1, stride: 0 }
    }

    #[inline]
    pub(crate) fn slots(slots: &[OpSlot]) -> WaitedOps {
        match slots.first() {
            Some(_) => WaitedOps {
                first: slots.as_ptr().wrapping_byte_add(offset_of!(OpSlot, completion)).cast(),
                count: slots.len(),
                stride: size_of::<OpSlot>(),
            },
            None => WaitedOps::none(),
        }
    }

    fn pointers(self) -> impl Iterator<Item = *const Completion> {
        (0..self.count).map(move |n| self.first.wrapping_byte_add(n * self.stride))
    }
}

/// Where a debugger finds the ops, from the fiber's block.
pub(super) const FIELDS: &[Field] = &[
    Field::new("fiber.ops.first", offset_of!(Fiber, ops) + offset_of!(WaitedOps, first)),
    Field::new("fiber.ops.count", offset_of!(Fiber, ops) + offset_of!(WaitedOps, count)),
    Field::new("fiber.ops.stride", offset_of!(Fiber, ops) + offset_of!(WaitedOps, stride)),
];

/// An op in flight.
pub(crate) struct OpRef<'a> {
    completion: *const Completion,
    is_in_slot: bool,
    frame: PhantomData<&'a Completion>,
}

impl OpRef<'_> {
    fn completion(&self) -> &Completion {
        // SAFETY: I1. The fiber waits for it, so it lies in the fiber's suspended frame.
        unsafe { &*self.completion }
    }

    pub(crate) fn describe(&self, driver: &Driver) -> OpDescription {
        if !self.is_in_slot {
            return driver.describe(self.completion());
        }
        // SAFETY: I1. The completion belongs to a slot, which lies in the same frame.
        unsafe { OpSlot::of(self.completion).as_ref() }.op.describe()
    }
}

/// The cache lines that a fiber touches first after its ops, and where they begin below its
/// completion.
const FETCHED_LINES: u64 = 8;
const FETCHED_BELOW: u64 = 128;

impl Fiber {
    /// Prefetches the memory that the fiber touches first when it is resumed after its ops, and the
    /// block of the fiber behind it in the queue, which the next such call reads. With hundreds of
    /// fibers, the work of the others has displaced it from the cache.
    #[inline(always)]
    pub(crate) fn fetch(&self) {
        if let Some(next) = self.next.get() {
            let block = std::ptr::from_ref::<Fiber>(&next) as u64;
            for part in [offset_of!(Fiber, coroutine), offset_of!(Fiber, ops)] {
                cringle_driver::prefetch(block + part as u64);
            }
        }
        let first = self.ops.get().first as usize as u64;
        for line in 0..FETCHED_LINES {
            cringle_driver::prefetch(first.wrapping_sub(FETCHED_BELOW).wrapping_add(line * 64));
        }
    }

    #[inline]
    pub(crate) fn set_ops(&self, ops: WaitedOps) {
        self.ops.set(ops);
    }

    /// The completions that the fiber waits for; `None` if it does not wait for ops.
    pub(crate) fn waited_ops(&self) -> Option<impl Iterator<Item = &Completion>> {
        let waits = self.state.get() == RunState::Waiting(Wait::Ops);
        // SAFETY: I1. While the fiber waits for its ops, their completions lie in its suspended
        // frame.
        waits.then(|| self.ops.get().pointers().map(|completion| unsafe { &*completion }))
    }

    /// The ops that the fiber waits for and that are in flight, and the number that it waits for in
    /// total.
    pub(crate) fn ops_in_flight(&self) -> Option<(impl Iterator<Item = OpRef<'_>>, usize)> {
        let ops = self.ops.get();
        let waits = self.state.get() == RunState::Waiting(Wait::Ops);
        let all = ops.pointers().map(move |completion| OpRef {
            completion,
            is_in_slot: ops.stride != 0,
            frame: PhantomData,
        });
        waits.then(|| (all.filter(|op| op.completion().state() == OpState::InFlight), ops.count))
    }

    /// The name of the op that the fiber waits for, as in "waits for a read".
    pub(crate) fn op_name(&self) -> Option<&'static str> {
        self.waited_ops()?.next().map(Completion::op_name)
    }
}
