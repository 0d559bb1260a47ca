//! What the worker knows of its fibers' unwinding: see [`unwinding`](crate::runtime::unwinding).
//!
//! `unwinding` counts the fibers that were suspended in any state but `No`, and the thread itself if it unwinds
//! (a `run` in a destructor). While it is 0, std's count belongs to the running fiber. A count of std's that is
//! zero says more: no fiber of this thread unwinds, whatever was noted, and a new *era* begins with none counted.

use super::Worker;
use crate::runtime::fiber::FiberRef;
use crate::runtime::unwinding::Unwinding;

/// The era in which a suspended fiber was counted.
pub(super) struct Counted(u32);

impl Worker {
    /// Whether this (running) fiber unwinds. While another fiber is suspended in a destructor, one that the
    /// program raised itself may be missed: what is wrong then is which calls are plain ones, and what a region is
    /// shielded from. Where more depends on it, ask [`surely_unwinds`](Self::surely_unwinds).
    #[inline]
    pub(crate) fn is_unwinding(&self, fiber: FiberRef) -> bool {
        std::thread::panicking() && (self.unwinding.get() == 0 || self.seems_to_unwind(fiber))
    }

    #[cold]
    fn seems_to_unwind(&self, fiber: FiberRef) -> bool {
        let state = match fiber.unwinding() {
            Unwinding::No => return false,
            _ if !fiber.frames_unwind() => Unwinding::No,
            Unwinding::Cancel => Unwinding::Cancel,
            Unwinding::Panic | Unwinding::Unknown => Unwinding::Panic,
        };
        fiber.set_unwinding(state);
        state != Unwinding::No
    }

    /// Why this (running) fiber unwinds, if it does; as certain as [`surely_unwinds`](Self::surely_unwinds).
    #[cold]
    pub(crate) fn why_it_unwinds(&self, fiber: FiberRef) -> Unwinding {
        let state = match self.surely_unwinds(fiber) {
            false => Unwinding::No,
            true => match fiber.unwinding() {
                // A cancel that the program has caught is over, whatever it has raised since.
                Unwinding::Cancel if !fiber.has_left_cancelled_frames() => Unwinding::Cancel,
                // The count is this fiber's, and it began where the library does not look.
                _ => Unwinding::Panic,
            },
        };
        fiber.set_unwinding(state);
        state
    }

    /// Whether this (running) fiber unwinds, so that nothing may be raised in it.
    pub(crate) fn surely_unwinds(&self, fiber: FiberRef) -> bool {
        std::thread::panicking() && (self.unwinding.get() == 0 || fiber.frames_unwind())
    }

    /// Whether a suspended fiber of this worker unwinds.
    pub(super) fn unwinds_suspended(&self, fiber: FiberRef) -> bool {
        fiber.unwinding() != Unwinding::No
            && self.probe(fiber, |fiber| fiber.ask_frames()).unwrap_or(true)
    }

    /// A cancel is about to unwind this (running) fiber.
    #[cold]
    pub(crate) fn begin_cancel(&self, fiber: FiberRef) {
        fiber.set_unwinding(Unwinding::Cancel);
        fiber.note_cancelled_frames();
    }

    /// Takes note of what is known before the fiber is suspended.
    #[inline(always)]
    pub(super) fn before_suspension(&self, fiber: FiberRef) -> Option<Counted> {
        match std::thread::panicking() {
            false => {
                fiber.set_unwinding(Unwinding::No);
                None
            }
            true => Some(self.count_suspended(fiber)),
        }
    }

    #[cold]
    fn count_suspended(&self, fiber: FiberRef) -> Counted {
        let others = self.unwinding.get();
        // Where a cancel unwinds it, std's count is the cancel's.
        if fiber.frames_raise(others == 0 && fiber.unwinding() != Unwinding::Cancel) {
            self.hold_others_back(fiber);
        }
        fiber.set_unwinding(match fiber.unwinding() {
            Unwinding::No | Unwinding::Unknown if others == 0 => Unwinding::Panic,
            Unwinding::No => Unwinding::Unknown,
            state => state,
        });
        self.unwinding.set(others + 1);
        Counted(self.era.get())
    }

    /// A fiber that was counted runs again.
    #[cold]
    pub(super) fn after_suspension(&self, counted: Counted) {
        if counted.0 == self.era.get() {
            self.unwinding.set(self.unwinding.get() - 1);
        }
    }

    /// Begins a new era if no fiber of this thread unwinds any more.
    #[cold]
    pub(super) fn look_for_era(&self) {
        if !std::thread::panicking() {
            self.era.set(self.era.get().wrapping_add(1));
            self.unwinding.set(0);
        }
    }
}
