//! `fork`, while fibers start and end.
//!
//! glibc's `fork` takes or resets its own locks but one, the lock of `dl_iterate_phdr`. A worker
//! holds it while it lists the modules, and at the end of a family after `dlopen`. So that lock and
//! the locks of this module are used within a [`Section`](cringle_sys::fork::Section).
//!
//! glibc empties its list of threads in the child. If the caller of `fork` ran on a block, that is
//! the descriptor of the child's only thread from then on.

use super::{Block, set_id};

/// Is called in a child of `fork`, and calls nothing of libc.
pub(super) fn in_child() {
    super::forget_unfinished_check();
    if let Some(own) = set_id::forget_thread()
        && let Some(glibc) = super::checked_glibc()
    {
        glibc.end_rseq(own);
        // SAFETY: I14. This code runs on a block, as the child's only thread.
        unsafe { Block::become_thread(glibc) };
    }
}
