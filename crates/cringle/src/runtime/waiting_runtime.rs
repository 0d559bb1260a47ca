//! For whom a thread works: the runtimes whose fibers wait for what it does.
//!
//! A closure that is [unblocked](crate::fiber::unblock()) runs on a thread that is no worker, and may do what its
//! fiber must not: wait for the end of the fiber's own runtime. The call lies in the frame of the fiber that waits
//! for it, and names the runtime; so does a `run` that the closure calls, and so on. Threads that the program
//! starts are not followed.

use super::shared::Shared;
use super::worker::Worker;
use std::cell::Cell;
use std::ptr::NonNull;

thread_local! {
    static INNERMOST: Cell<Option<WaitingRuntime>> = const { Cell::new(None) };
}

/// A runtime that waits for the calling thread, and those that wait for that runtime.
#[derive(Clone, Copy)]
pub(crate) struct WaitingRuntime(NonNull<Shared>);

// SAFETY: it is read by threads that the runtime waits for, so that it outlives their use of it.
unsafe impl Send for WaitingRuntime {}
// SAFETY: as above; a `Shared` may be read by any thread.
unsafe impl Sync for WaitingRuntime {}

impl WaitingRuntime {
    /// For whom the caller works.
    pub(crate) fn current() -> Option<WaitingRuntime> {
        match Worker::here() {
            Some(worker) => Some(WaitingRuntime(NonNull::from(&**worker.shared()))),
            None => INNERMOST.get(),
        }
    }

    /// Calls `f` for this runtime, which waits for it, on a thread that is no worker.
    pub(crate) fn call<R>(served: Option<WaitingRuntime>, f: impl FnOnce() -> R) -> R {
        struct Restore(Option<WaitingRuntime>);
        impl Drop for Restore {
            fn drop(&mut self) {
                INNERMOST.set(self.0);
            }
        }
        let _restore = Restore(INNERMOST.replace(served));
        f()
    }

    /// Whether a runtime waits for the caller.
    pub(crate) fn is_waiting(shared: &Shared) -> bool {
        let mut served = WaitingRuntime::current();
        while let Some(WaitingRuntime(inner)) = served {
            if std::ptr::eq(inner.as_ptr(), shared) {
                return true;
            }
            // SAFETY: I2. The frames of its `run` and of its fiber stay until the caller returns to them.
            served = unsafe { inner.as_ref() }.served();
        }
        false
    }
}
