//! The ops that a fiber waits for, which lie in its suspended frame.

use super::{Fiber, State, Wait};
use crate::driver::completion::OpState;
use crate::driver::{Completion, Driver, OpDescription, OpSlot};
use std::marker::PhantomData;

/// Where the completions lie that a fiber waits for.
#[derive(Clone, Copy)]
pub(crate) struct WaitedOps {
    first: *const Completion,
    count: usize,
    stride: usize,
}

impl WaitedOps {
    pub(super) fn none() -> WaitedOps {
        WaitedOps { first: std::ptr::null(), count: 0, stride: 0 }
    }

    #[inline]
    pub(in crate::runtime) fn one(completion: &Completion) -> WaitedOps {
        WaitedOps { first: completion, count: 1, stride: 0 }
    }

    #[inline]
    pub(in crate::runtime) fn slots(slots: &[OpSlot]) -> WaitedOps {
        match slots.first() {
            Some(_) => WaitedOps {
                first: slots
                    .as_ptr()
                    .wrapping_byte_add(std::mem::offset_of!(OpSlot, completion))
                    .cast(),
                count: slots.len(),
                stride: size_of::<OpSlot>(),
            },
            None => WaitedOps::none(),
        }
    }
}

/// An op that is under way.
pub(in crate::runtime) struct OpRef<'a> {
    completion: *const Completion,
    /// The op itself lies beside it.
    batched: bool,
    frame: PhantomData<&'a Completion>,
}

impl OpRef<'_> {
    fn completion(&self) -> &Completion {
        // SAFETY: I1. The fiber waits for it, so that it lies in its suspended frame.
        unsafe { &*self.completion }
    }

    pub(in crate::runtime) fn describe(&self, driver: &Driver) -> OpDescription {
        match self.batched {
            // SAFETY: I1. The completion is that of a slot, which stays with it.
            true => unsafe { OpSlot::of(self.completion).as_ref() }.op.describe(),
            false => driver.describe(self.completion()),
        }
    }
}

/// What a fiber touches when its ops have ended: so many lines of the cache, the first ones
/// below its completion.
const FETCHED_LINES: u64 = 8;
const FETCHED_BELOW: u64 = 128;

impl Fiber {
    /// Has the cache fetch what the fiber will touch first when it is resumed after its ops: with hundreds
    /// of fibers, the work of the others has pushed that out.
    #[inline(always)]
    pub(in crate::runtime) fn fetch(&self) {
        let first = self.ops.get().first as usize as u64;
        for line in 0..FETCHED_LINES {
            crate::driver::prefetch(first.wrapping_sub(FETCHED_BELOW).wrapping_add(line * 64));
        }
    }

    /// The ops it waits for.
    pub(in crate::runtime) fn waited_ops(&self) -> Option<impl Iterator<Item = &Completion>> {
        let waits = self.state.get() == State::Waiting(Wait::Ops);
        let ops = self.ops.get();
        waits.then(|| {
            // SAFETY: I1. While the fiber waits for its ops, their completions lie in its suspended
            // frame, at this distance from each other.
            (0..ops.count).map(move |n| unsafe { &*ops.first.byte_add(n * ops.stride) })
        })
    }

    #[inline]
    pub(in crate::runtime) fn set_ops(&self, ops: WaitedOps) {
        self.ops.set(ops);
    }

    /// The ops that it waits for and that are under way, and how many it has asked for together.
    pub(in crate::runtime) fn ops_in_flight(
        &self,
    ) -> Option<(impl Iterator<Item = OpRef<'_>>, usize)> {
        let ops = self.ops.get();
        let waits = self.state.get() == State::Waiting(Wait::Ops);
        let all = (0..ops.count).map(move |n| OpRef {
            completion: ops.first.wrapping_byte_add(n * ops.stride),
            batched: ops.stride != 0,
            frame: PhantomData,
        });
        waits.then(|| (all.filter(|op| op.completion().state() == OpState::InFlight), ops.count))
    }

    /// What it waits for in the kernel, as a person calls it.
    pub(in crate::runtime) fn op_name(&self) -> Option<&'static str> {
        self.waited_ops()?.next().map(Completion::op_name)
    }
}
