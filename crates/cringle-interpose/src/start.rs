//! The start of a program with interposed calls.

use crate::{conditions, futex, next, own_threads, queue, threads, waits};

/// Looks up the next definition of each call. The program's first constructor calls it, while the
/// process has one thread.
pub extern "C" fn install() {
    // SAFETY: the contract of this function.
    unsafe { next::resolve() };
    conditions::find_attributes();
    after_fork();
    cringle_sys::set_interposed();
}

/// Makes the calls of a forked child plain ones: it has no worker.
fn after_fork() {
    extern "C" fn in_child() {
        cringle_core::worker::Worker::leave_thread();
        own_threads::forget();
        queue::forget_all();
        futex::forget_all();
        cringle_driver::kept::forget_all();
        waits::count_fork();
        threads::forget_all();
    }
    // SAFETY: the contract of `pthread_atfork`: the handler only writes a thread-local and a
    // number.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}
