//! One operation of a fiber, from asking to answer.

use crate::driver::Op;
use crate::driver::uring::means_cancelled;
use crate::runtime::cancelled;
use crate::runtime::fiber::FiberRef;
use crate::runtime::worker::{Here, Worker};
use crate::sys;
use std::io;

/// Has the kernel perform `op` while the fiber waits. What was done wins over a cancel that came
/// late; one that came before refuses the op.
#[inline(always)]
pub(crate) fn perform(worker: Here, fiber: FiberRef, op: Op) -> io::Result<usize> {
    if worker.refuses(fiber) {
        return Err(cancelled::error());
    }
    outcome(fiber, worker.perform_one(fiber, op))
}

/// An op's result for the fiber that asked.
#[inline]
pub(crate) fn outcome(fiber: FiberRef, result: i32) -> io::Result<usize> {
    if result < 0 && fiber.is_cancelled() && means_cancelled(result) {
        return Err(cancelled::error());
    }
    sys::result_of(result)
}

/// Calls what the ring has no op for on the library's small pool. `f` does not wait for other
/// processes or fibers.
pub(crate) fn call<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    let pool = Worker::here().map(|worker| std::sync::Arc::clone(&worker.shared().call_pool));
    match pool {
        Some(pool) => super::unblock::call_on(&pool, f),
        None => f(),
    }
}
