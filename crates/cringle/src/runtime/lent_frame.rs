//! No unwinding leaves a frame that is lent (**I12**).
//!
//! A frame is lent while others have an address in it: the kernel and the driver (an op, its completion, its
//! buffer), another thread (a closure on the pool), other fibers (a scope's, a queue's waiter). The code that
//! lends it ends every wait before it returns. An unwinding out of it would free the frame under the others, so
//! nothing in between may unwind: foreign code is called through [`foreign`](super::foreign), which catches.
//! What gets through nevertheless is a defect of the library, and ends the process here.

/// A frame is lent until [`end`](Self::end) is called. It has no size: all that it adds to a function is a
/// landing pad.
#[must_use = "it guards the frame until `end` is called"]
pub(crate) struct LentFrame(());

impl LentFrame {
    #[inline(always)]
    pub(crate) fn begin() -> LentFrame {
        LentFrame(())
    }

    #[inline(always)]
    pub(crate) fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for LentFrame {
    #[inline(always)]
    fn drop(&mut self) {
        abort();
    }
}

#[cold]
#[inline(never)]
fn abort() -> ! {
    crate::sys::report(format_args!(
        "a panic would have left a frame that the kernel or other fibers still use, which is a defect of cringle; \
         aborting"
    ));
    std::process::abort();
}
