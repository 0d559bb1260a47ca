//! What the frames of the running fiber say of its unwinding.

use super::Fiber;
use crate::runtime::frames::{self, WALK_BYTES};

impl Fiber {
    /// Whether it unwinds. So it is taken to where its stack has no room to find out: nothing could be raised
    /// there either.
    #[cold]
    pub(in crate::runtime) fn frames_unwind(&self) -> bool {
        self.stack().bytes_left() < WALK_BYTES || frames::are_unwinding(self.stack().range())
    }

    /// Whether it runs a panic hook, or formats the message of a panic. `panics` says that std's count is its own.
    #[cold]
    pub(in crate::runtime) fn frames_raise(&self, panics: bool) -> bool {
        self.stack().bytes_left() >= WALK_BYTES && frames::are_raising(self.stack().range(), panics)
    }

    /// Takes note of the frame that will catch the cancel that is about to be raised.
    #[cold]
    pub(in crate::runtime) fn note_cancelled_frames(&self) {
        self.cold.cancel_catcher.set(match self.stack().bytes_left() < WALK_BYTES {
            true => usize::MAX,
            false => frames::catcher(self.stack().range()),
        });
    }

    /// Whether the last cancel was caught: what unwinds the fiber now has come beyond that frame. (In that frame it may
    /// be the cancel itself, on its way to a `catch_unwind` that was inlined.)
    #[cold]
    pub(in crate::runtime) fn has_left_cancelled_frames(&self) -> bool {
        self.stack().bytes_left() >= WALK_BYTES
            && frames::unwound(self.stack().range()) > Some(self.cold.cancel_catcher.get())
    }

    /// Whether the panic whose hook runs has begun within an unwinding.
    #[cold]
    pub(in crate::runtime) fn frames_unwound_before(&self) -> bool {
        self.stack().bytes_left() >= WALK_BYTES && frames::were_unwinding(self.stack().range())
    }
}
