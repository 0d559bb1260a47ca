//! What the worker knows about the unwinding of its fibers: see
//! [`unwinding`](crate::unwinding).
//!
//! An [`UnwindCount`](crate::unwind_count::UnwindCount) counts the fibers of a family that
//! were suspended in any state but `No`. While it is 0, std's count of panics belongs to the
//! running fiber. Conversely, when std's count is 0, no fiber of the family unwinds, whatever was
//! noted; then a new *era* begins, in which none is counted. (The worker looks at std's count, so
//! it begins eras only where it shares the thread-locals of its fibers.)

use super::Current;
use crate::unwind_count::Counted;
use crate::unwinding::Unwinding;

impl Current {
    /// Whether the running fiber unwinds.
    ///
    /// While another fiber is suspended in a destructor, this may miss an unwinding that the
    /// program raised by std. Then plain calls suspend, and a region lacks its shield. Where more
    /// depends on the answer, use [`surely_unwinds`](Self::surely_unwinds).
    #[inline]
    pub fn is_unwinding(self) -> bool {
        std::thread::panicking()
            && (self.fiber.family().unwinding().get() == 0 || self.seems_to_unwind())
    }

    #[cold]
    fn seems_to_unwind(self) -> bool {
        let state = match self.fiber.unwinding() {
            Unwinding::No => return false,
            _ if !self.fiber.frames_unwind() => Unwinding::No,
            Unwinding::Cancel => Unwinding::Cancel,
            Unwinding::Panic | Unwinding::Unknown => Unwinding::Panic,
        };
        self.fiber.set_unwinding(state);
        state != Unwinding::No
    }

    /// Why the running fiber unwinds, with the certainty of
    /// [`surely_unwinds`](Self::surely_unwinds).
    #[cold]
    pub fn why_it_unwinds(self) -> Unwinding {
        let state = if !self.surely_unwinds() {
            Unwinding::No
        } else if self.fiber.unwinding() == Unwinding::Cancel
            && !self.fiber.has_left_cancelled_frames()
        {
            Unwinding::Cancel
        } else {
            // Either a panic, or the program has caught the cancel and raised a payload since.
            Unwinding::Panic
        };
        self.fiber.set_unwinding(state);
        state
    }

    /// Whether the running fiber unwinds, so that nothing may be raised in it. Never wrong, but may
    /// walk the stack.
    pub fn surely_unwinds(self) -> bool {
        std::thread::panicking()
            && (self.fiber.family().unwinding().get() == 0 || self.fiber.frames_unwind())
    }

    /// Notes that a cancel unwinds the running fiber next.
    #[cold]
    pub(crate) fn begin_cancel(self) {
        self.fiber.set_unwinding(Unwinding::Cancel);
        self.fiber.note_cancelled_frames();
    }

    /// Notes the state of the running fiber before it is suspended.
    #[inline(always)]
    pub(super) fn before_suspension(self) -> Option<Counted> {
        if std::thread::panicking() {
            return Some(self.count_suspended());
        }
        self.fiber.set_unwinding(Unwinding::No);
        None
    }

    #[cold]
    fn count_suspended(self) -> Counted {
        let is_own_count = self.fiber.family().unwinding().get() == 0;
        // While a cancel unwinds the fiber, std's count is due to the cancel and not to a panic.
        if self.fiber.frames_raise(is_own_count && self.fiber.unwinding() != Unwinding::Cancel) {
            self.hold_others_back();
        }
        self.fiber.set_unwinding(match self.fiber.unwinding() {
            Unwinding::No | Unwinding::Unknown if is_own_count => Unwinding::Panic,
            Unwinding::No => Unwinding::Unknown,
            state => state,
        });
        self.fiber.family().unwinding().add()
    }

    /// A fiber that was counted runs again.
    #[cold]
    pub(super) fn after_suspension(self, counted: Counted) {
        self.fiber.family().unwinding().remove(counted);
    }
}
