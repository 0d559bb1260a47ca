//! The count of the fibers that share a count of panics with others and were suspended while they
//! unwind, or may. See `worker/unwinding.rs`.

use std::cell::Cell;

/// The suspended fibers that unwind, or may.
#[derive(Default)]
pub(crate) struct UnwindCount {
    /// Those of this era. The thread itself counts too, if it unwinds.
    fibers: Cell<u32>,
    era: Cell<u32>,
}

/// The era in which a suspended fiber was counted.
pub(crate) struct Counted(u32);

impl UnwindCount {
    /// The count of a family that uses the calling thread's count of panics.
    pub(crate) fn of_thread() -> UnwindCount {
        // In a `run` that a destructor calls, std's count says nothing about the fibers.
        UnwindCount { fibers: Cell::new(u32::from(std::thread::panicking())), era: Cell::new(0) }
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u32 {
        self.fibers.get()
    }

    pub(crate) fn add(&self) -> Counted {
        self.fibers.set(self.fibers.get() + 1);
        Counted(self.era.get())
    }

    pub(crate) fn remove(&self, counted: Counted) {
        if counted.0 == self.era.get() {
            debug_assert!(self.fibers.get() > 0, "a fiber is counted in its era");
            self.fibers.set(self.fibers.get() - 1);
        }
    }

    pub(crate) fn begin_era(&self) {
        self.era.set(self.era.get().wrapping_add(1));
        self.fibers.set(0);
    }
}
