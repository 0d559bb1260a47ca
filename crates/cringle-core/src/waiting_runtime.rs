//! The runtimes that wait for the calling thread.
//!
//! A closure that is unblocked (`fiber::unblock`) runs on a thread that is no worker. It must not
//! wait there for the end of its fiber's own runtime, which would never come. So the call records
//! the runtime, in the frame of the fiber that waits for it. A `run` that the closure calls records
//! that runtime in turn, and so on: a chain. Threads that the program starts itself are not
//! followed.

use super::shared::Shared;
use super::worker::Worker;
use std::cell::Cell;
use std::ptr::NonNull;

thread_local! {
    static INNERMOST: Cell<Option<WaitingRuntime>> = const { Cell::new(None) };
}

/// A runtime that waits for the calling thread. Knows the runtime that waits for it in turn.
#[derive(Clone, Copy)]
pub struct WaitingRuntime(NonNull<Shared>);

// SAFETY: I2. Only threads that the runtime waits for read it, so it outlives their use of it.
unsafe impl Send for WaitingRuntime {}
// SAFETY: I2, as above. Any thread may read a `Shared`.
unsafe impl Sync for WaitingRuntime {}

impl WaitingRuntime {
    /// The innermost runtime that waits for the caller.
    pub fn current() -> Option<WaitingRuntime> {
        match Worker::here() {
            Some(worker) => Some(WaitingRuntime(NonNull::from(&**worker.shared()))),
            None => INNERMOST.get(),
        }
    }

    /// Calls `f` on a thread that is no worker, for a runtime that waits for the call.
    pub fn call<R>(waiting: Option<WaitingRuntime>, f: impl FnOnce() -> R) -> R {
        struct Restore(Option<WaitingRuntime>);
        impl Drop for Restore {
            fn drop(&mut self) {
                INNERMOST.set(self.0);
            }
        }
        let _restore = Restore(INNERMOST.replace(waiting));
        f()
    }

    /// Whether this runtime waits for the caller.
    pub fn is_waiting(shared: &Shared) -> bool {
        let mut next = WaitingRuntime::current();
        while let Some(WaitingRuntime(runtime)) = next {
            if std::ptr::eq(runtime.as_ptr(), shared) {
                return true;
            }
            // SAFETY: I2. The runtime's `run` waits for the caller, so its frame keeps it.
            next = unsafe { runtime.as_ref() }.waiting_runtime();
        }
        false
    }
}
