//! A guard against unwinding out of a lent frame (**I12**).
//!
//! A frame is lent while the kernel and the driver (an op, its completion, its buffer), another
//! thread (a closure on the pool) or other fibers (the fibers of a scope, the neighbours in a wait
//! queue) hold an address in it. The code that lends the frame ends these loans before it returns.
//! An unwinding would free the frame before that, so nothing in between may unwind: foreign code is
//! called through [`foreign`](super::foreign), which catches. An unwinding that gets through is a
//! defect of the library, and ends the process here.

/// The frame is lent until [`end`](Self::end) is called. The guard has no size: it adds only a
/// landing pad to a function.
#[must_use = "it guards the frame until `end` is called"]
pub struct LentFrame(());

impl LentFrame {
    #[inline(always)]
    pub fn begin() -> LentFrame {
        LentFrame(())
    }

    #[inline(always)]
    pub fn end(self) {
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
    cringle_sys::report(format_args!(
        "a panic would have left a frame that the kernel or other fibers still use, which is a \
         defect of cringle; aborting"
    ));
    std::process::abort();
}
