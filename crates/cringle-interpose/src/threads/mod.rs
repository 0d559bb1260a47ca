//! Threads that are fibers, under [`Threads::Fibers`](cringle_core::choices::Threads::Fibers).
//!
//! `pthread_create` on a fiber starts a fiber on the next worker. Its `pthread_t` is the descriptor
//! in its block of thread-locals, which is what `pthread_self` returns there. So the block is taken
//! before the fiber starts and travels with it (`FamilyChoice::Reserved`). At the end of the family
//! the worker hands the block to its *keeper*, the thread's record in the [`registry`]; the block
//! is free when the thread was joined, or has ended detached. Until then the thread is in the
//! registry, whichever runtime it belongs to.
//!
//! libc knows the block as a thread that the kernel does not know. So every function that takes a
//! `pthread_t` and would free it, wait for it, signal it or ask the kernel about it, is answered
//! here for all callers (`join`, `kernel`, `scheduling`).

mod alive;
mod attributes;
pub(crate) mod cancel;
mod create;
mod exit;
mod join;
mod kernel;
mod registry;
mod scheduling;
mod signals;
mod state;

pub(crate) use alive::{forget_all, has_threads};
pub use cancel::{
    pthread_cancel, pthread_setcancelstate, pthread_setcanceltype, pthread_testcancel,
};
pub use create::{C11Start, Start, next_thread_is_of_the_system, pthread_create, thrd_create};
pub use exit::{pthread_exit, thrd_exit};
pub use join::{
    pthread_clockjoin_np, pthread_detach, pthread_join, pthread_timedjoin_np, pthread_tryjoin_np,
    thrd_detach, thrd_join,
};
pub use kernel::{
    prctl, pthread_getattr_np, pthread_getname_np, pthread_kill, pthread_setname_np,
    pthread_sigqueue, raise, sigaltstack,
};
pub(super) use scheduling::is_own_clock;
pub use scheduling::{
    pthread_getaffinity_np, pthread_getcpuclockid, pthread_getschedparam, pthread_setaffinity_np,
    pthread_setschedparam, pthread_setschedprio,
};

pub(crate) use signals::{
    begin_guest, begin_own, end_own, forget_worker, have_signals, interruptible, mask_of_fiber,
    note_worker, receive_interrupted, set_mask, with_mask,
};
pub use signals::{pthread_sigmask, sigprocmask};
pub(crate) use state::admit;
pub use state::{
    capset, nice, ptrace, sched_setaffinity, sched_setparam, sched_setscheduler, setfsgid,
    setfsuid, setns, setpriority, tgkill, unshare,
};

use cringle_tls::is_block;
use libc::pthread_t;

/// The calling thread or fiber.
fn own() -> pthread_t {
    // SAFETY: the call has no contract.
    unsafe { libc::pthread_self() }
}

/// Whether a handle belongs to a fiber, as opposed to a thread of the system. A block may show its
/// [thread's number](cringle_tls::with_kernels_number), so the registry is asked, too.
///
/// # Safety
///
/// The handle is valid, as libc's functions demand.
unsafe fn is_fibers(thread: pthread_t) -> bool {
    // SAFETY: by the contract.
    thread != 0 && (unsafe { is_block(thread as usize) } || registry::find(thread).is_some())
}
