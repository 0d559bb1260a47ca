//! One operation of a fiber, from asking to answer.

use crate::driver::{Op, blocking, means_cancelled};
use crate::runtime::fiber::FiberRef;
use crate::runtime::wait_target::{TargetInfo, WaitTarget};
use crate::runtime::worker::{Here, Worker};
use crate::sys;
use std::io;
use std::time::Duration;

/// Has the kernel perform `op` while the fiber waits. What was done wins over a cancel that came
/// late; one that came before refuses the op.
#[inline(always)]
pub(crate) fn perform(worker: Here, fiber: FiberRef, op: Op) -> io::Result<usize> {
    if worker.refuses(fiber) {
        return Err(fiber.cancel_error());
    }
    let result = perform_to_the_end(worker, fiber, op);
    crate::tracing_events::trace!(op = op.name().as_str(), result, "an operation has ended");
    outcome(worker, fiber, result)
}

/// The same for an op that waits for a peer, and for so long at most; `None` where the time was up.
#[cold]
pub(crate) fn perform_within(
    worker: Here,
    fiber: FiberRef,
    op: Op,
    limit: Duration,
) -> io::Result<Option<usize>> {
    let Some(at) = worker.now().checked_add(limit) else {
        return perform(worker, fiber, op).map(Some);
    };
    if worker.refuses(fiber) {
        return Err(fiber.cancel_error());
    }
    loop {
        let result = worker.perform_one_until(fiber, op, at);
        if !was_dropped(worker, fiber, result) {
            return outcome(worker, fiber, result).map(Some);
        }
        if worker.now() >= at {
            return Ok(None);
        }
        worker.yield_now(fiber);
    }
}

/// Has the kernel perform `op`, again if it was dropped: the op's result.
#[inline(always)]
pub(crate) fn perform_to_the_end(worker: Here, fiber: FiberRef, op: Op) -> i32 {
    let result = worker.perform_one(fiber, op);
    match was_dropped(worker, fiber, result) && !matches!(op, Op::Raw(_)) {
        true => repeat(worker, fiber, op),
        false => result,
    }
}

/// Whether the kernel gave an op up that nobody cancelled. It does when it needs a thread for it,
/// has none yet, and a pending signal keeps it from starting one. The op has not begun then.
#[inline]
pub(crate) fn was_dropped(worker: Here, fiber: FiberRef, result: i32) -> bool {
    result == -libc::ECANCELED && !worker.is_interrupted(fiber)
}

#[cold]
fn repeat(worker: Here, fiber: FiberRef, op: Op) -> i32 {
    loop {
        worker.yield_now(fiber);
        let result = worker.perform_one(fiber, op);
        if !was_dropped(worker, fiber, result) {
            return result;
        }
    }
}

/// An op's result for the fiber that asked.
#[inline]
pub(crate) fn outcome(worker: Here, fiber: FiberRef, result: i32) -> io::Result<usize> {
    if result < 0 && means_cancelled(result) && worker.is_interrupted(fiber) {
        return Err(fiber.cancel_error());
    }
    sys::result_of(result)
}

/// Calls what the ring has no op for on the library's small pool, or here where that can have no thread.
/// `f` does not wait for other processes or fibers.
fn call<T: Send>(subject: &dyn WaitTarget, f: impl FnOnce() -> T + Send) -> T {
    let pool = Worker::here().map(|worker| std::sync::Arc::clone(&worker.shared().call_pool));
    match pool {
        Some(pool) => super::unblock::call_on_or_here(&pool, Some(subject), f),
        None => f(),
    }
}

/// An op as the plain call on a thread of the pool: one that no ring has; or one on a regular file that the
/// ring answered by `EAGAIN`, whose answer is the last word. XFS may answer so for once; a file system that
/// knows no `NOWAIT` does always where the file is opened with `O_NONBLOCK`; and an attribute in `/sys`
/// where it means it: to ask again until the answer is another might be for ever.
///
/// # Safety
///
/// The op's pointers are valid for the call.
#[cold]
pub(crate) unsafe fn perform_aside(op: Op) -> i32 {
    struct Sent(Op);
    // SAFETY: what the op points to is borrowed by a caller that waits for the call's end.
    unsafe impl Send for Sent {}
    let sent = Sent(op);
    call(&Aside(op), move || {
        let Sent(op) = { sent };
        // SAFETY: by the contract.
        unsafe { blocking::perform(&op) }
    })
}

/// Performs a read or a write of a file that a ring would access at the wrong offsets, as the plain call. It may
/// wait for another process, the server of the file system, so it runs on the pool that grows as needed.
///
/// # Safety
///
/// The op's pointers are valid for the call.
#[cold]
pub(crate) unsafe fn perform_off_ring(worker: Here, op: Op) -> i32 {
    struct Sent(Op);
    // SAFETY: I1. What the op points to is borrowed by a caller that waits until the call has ended.
    unsafe impl Send for Sent {}
    let sent = Sent(op);
    super::unblock::call_on_or_here(&worker.shared().unblock_pool, Some(&Aside(op)), move || {
        let Sent(op) = { sent };
        // SAFETY: by the contract.
        unsafe { blocking::perform(&op) }
    })
}

/// It lies in the frame that waits for the call.
struct Aside(Op);

impl WaitTarget for Aside {
    fn info(&self) -> TargetInfo {
        let about = self.0.describe();
        // SAFETY: what the op points to stays until the call has returned, and the fiber waits for that.
        let path = unsafe { about.path() };
        TargetInfo::Call { about, path }
    }
}
