//! Questions about unwinding that the running fiber's [`frames`] answer.
//!
//! Each walk needs stack. Where too little is left, the answer is the one that keeps the library
//! from raising anything, which would overflow the stack.

use super::Fiber;
use crate::frames::{self, WALK_BYTES};

impl Fiber {
    /// Whether it unwinds.
    #[cold]
    pub(crate) fn frames_unwind(&self) -> bool {
        !self.has_room_to_walk() || frames::are_unwinding(self.stack().range())
    }

    /// Whether it runs a panic hook, or formats the message of a panic. `panics`: std's count is
    /// this fiber's.
    #[cold]
    pub(crate) fn frames_raise(&self, panics: bool) -> bool {
        self.has_room_to_walk() && frames::are_raising(self.stack().range(), panics)
    }

    /// Notes the frame that will catch the cancel which is raised next.
    #[cold]
    pub(crate) fn note_cancelled_frames(&self) {
        self.cold.cancel_catcher.set(if self.has_room_to_walk() {
            frames::catcher(self.stack().range())
        } else {
            usize::MAX
        });
    }

    /// Whether the last cancel was caught: the current unwinding has passed the frame that caught
    /// it. (An unwinding within that frame may be the cancel itself, on its way to a `catch_unwind`
    /// that was inlined.)
    #[cold]
    pub(crate) fn has_left_cancelled_frames(&self) -> bool {
        self.has_room_to_walk()
            && frames::unwound(self.stack().range()) > Some(self.cold.cancel_catcher.get())
    }

    /// Whether the panic whose hook runs now began within an unwinding.
    #[cold]
    pub(crate) fn frames_unwound_before(&self) -> bool {
        self.has_room_to_walk() && frames::were_unwinding(self.stack().range())
    }

    fn has_room_to_walk(&self) -> bool {
        self.stack().bytes_left() >= WALK_BYTES
    }
}
