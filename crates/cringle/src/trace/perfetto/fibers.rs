//! What is known of each fiber of a worker while its events are read.

/// See the module. Fibers are found by their place in the worker's table.
#[derive(Default)]
pub(super) struct Fibers {
    known: Vec<Fiber>,
    next: u64,
}

#[derive(Clone, Default)]
pub(super) struct Fiber {
    /// Tells it from all others of the track; 0 if nothing is known.
    pub(super) number: u64,
    pub(super) generation: Option<u32>,
    /// The number of its name; 0 if it has none yet.
    pub(super) name: u64,
    /// When it became ready.
    pub(super) ready: Option<u64>,
    /// Flows that lead to its next slice.
    pub(super) made_by: u64,
    pub(super) woken_by: u64,
    /// Scopes and spans that it is in, by the numbers of their names.
    pub(super) within: Vec<u64>,
}

/// Which fiber waits for an op. Numbers of ops are given in turn, so that those under way have places of
/// their own; of more than there are places the older ones are forgotten.
pub(super) struct Owners(Vec<(u32, u32)>);

const MOST_OPS: usize = 1 << 14;

impl Owners {
    pub(super) fn new() -> Owners {
        Owners(vec![(0, 0); MOST_OPS])
    }

    pub(super) fn set(&mut self, op: u32, fiber: u32) {
        self.0[op as usize % MOST_OPS] = (op, fiber);
    }

    pub(super) fn take(&mut self, op: u32) -> Option<u32> {
        let place = &mut self.0[op as usize % MOST_OPS];
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

    /// Another fiber has the place now.
    pub(super) fn renew(&mut self, index: u32) -> &mut Fiber {
        self.vacate(index);
        self.get(index)
    }

    /// The fiber has ended.
    pub(super) fn vacate(&mut self, index: u32) {
        if let Some(fiber) = self.known.get_mut(index as usize) {
            *fiber = Fiber::default();
        }
    }

    /// Events are missing: who has which place is found out anew, and what each waits for.
    pub(super) fn forget(&mut self) {
        for fiber in &mut self.known {
            fiber.ready = None;
            fiber.made_by = 0;
            fiber.woken_by = 0;
            fiber.within.clear();
        }
    }
}
