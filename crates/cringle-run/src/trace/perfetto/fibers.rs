//! The state of a worker's fibers while its events are converted.

use std::collections::HashMap;

/// The state of the fibers, by their index.
#[derive(Default)]
pub(super) struct Fibers {
    known: Vec<Fiber>,
    next: u64,
}

/// The state of the fibers on their way between two workers, by the flow of the move. The state of
/// one whose arrival was lost remains; if there are too many, all are forgotten.
#[derive(Default)]
pub(crate) struct OnTheWay(HashMap<u64, Fiber>);

const MAX_ON_THE_WAY: usize = 1 << 18;

#[derive(Clone, Default)]
pub(super) struct Fiber {
    /// The fiber's number in the trace, which is unique in the track; 0 for a vacant index. See
    /// [`HOME_BIT`](crate::trace::wire::HOME_BIT).
    pub(super) number: u64,
    pub(super) generation: Option<u32>,
    /// The number of the fiber's name; 0 if it has none yet.
    pub(super) name: u64,
    /// The time at which it became ready.
    pub(super) ready: Option<u64>,
    /// The flows that lead to its next slice.
    pub(super) made_by: u64,
    pub(super) woken_by: u64,
    /// The names of the open scopes and spans.
    pub(super) within: Vec<&'static str>,
}

impl OnTheWay {
    /// Whether a departure was converted, and its arrival was not.
    pub(crate) fn has(&self, flow: u64) -> bool {
        self.0.contains_key(&flow)
    }

    pub(super) fn insert(&mut self, flow: u64, fiber: Fiber) {
        if self.0.len() == MAX_ON_THE_WAY {
            self.0.clear();
        }
        self.0.insert(flow, fiber);
    }

    pub(super) fn take(&mut self, flow: u64) -> Option<Fiber> {
        self.0.remove(&flow)
    }
}

/// The fibers that wait for ops, by the number of the op. Ops are numbered consecutively, so those
/// in flight have distinct places; if there are more than places, the oldest are forgotten.
pub(super) struct Owners(Vec<(u32, u32)>);

const MAX_OPS: usize = 1 << 14;

impl Owners {
    pub(super) fn new() -> Owners {
        Owners(vec![(0, 0); MAX_OPS])
    }

    pub(super) fn set(&mut self, op: u32, fiber: u32) {
        self.0[op as usize % MAX_OPS] = (op, fiber);
    }

    pub(super) fn take(&mut self, op: u32) -> Option<u32> {
        let place = &mut self.0[op as usize % MAX_OPS];
        (place.0 == op && op != 0).then(|| std::mem::take(place).1)
    }
}

impl Fibers {
    pub(super) fn get(&mut self, index: u32) -> &mut Fiber {
        let index = index as usize;
        if index >= self.known.len() {
            self.known.resize(index + 1, Fiber::default());
        }
        let fiber = &mut self.known[index];
        if fiber.number == 0 {
            self.next += 1;
            fiber.number = self.next;
        }
        fiber
    }

    /// Starts the state of a new fiber at this index.
    pub(super) fn renew(&mut self, index: u32) -> &mut Fiber {
        self.vacate(index);
        self.get(index)
    }

    /// Removes the state of a fiber that leaves.
    pub(super) fn take(&mut self, index: u32) -> Fiber {
        std::mem::take(self.get(index))
    }

    /// Sets the state of a fiber that has arrived.
    pub(super) fn put(&mut self, index: u32, fiber: Fiber) {
        let index = index as usize;
        if index >= self.known.len() {
            self.known.resize(index + 1, Fiber::default());
        }
        self.known[index] = fiber;
    }

    /// Clears the state of a fiber that has ended.
    pub(super) fn vacate(&mut self, index: u32) {
        if let Some(fiber) = self.known.get_mut(index as usize) {
            *fiber = Fiber::default();
        }
    }

    /// Clears what events may have changed, because some are missing.
    pub(super) fn forget(&mut self) {
        for fiber in &mut self.known {
            fiber.ready = None;
            fiber.made_by = 0;
            fiber.woken_by = 0;
            fiber.within.clear();
        }
    }
}
