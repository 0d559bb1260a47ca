//! The exported functions of queues.

use crate::abi::*;
use crate::error::{Error, border};
use crate::exports::{check_array, check_ops, null};
use crate::handles;
use cringle::runtime;
use std::ffi::c_int;
use std::slice;
use std::time::Duration;

/// Opens a queue of the engine, and stores its number in `*queue`. The operations that are
/// submitted to it have a completion each, in the order in which they end.
///
/// `depth` is the most operations that are submitted and whose completions are not polled, between
/// 1 and `CRINGLE_MAX_DEPTH`. Of these, at most `params.in_flight_limit`, and at most 1000, are
/// performed at the same time; the others wait. The queues of an engine take turns.
///
/// Returns 0, or `-EBADF`, `-ESRCH`, `-EFAULT`, `-EINVAL` or `-ENOSPC` (65536 queues are open).
///
/// # Safety
///
/// `queue` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cringle_queue_open(
    io: cringle_io,
    depth: u32,
    queue: *mut cringle_queue,
) -> c_int {
    border(|| {
        let engine = handles::get(io)?;
        if queue.is_null() {
            return Err(null("queue"));
        }
        if !(1..=CRINGLE_MAX_DEPTH).contains(&depth) {
            let text = format!("depth is {depth}, and must be between 1 and {CRINGLE_MAX_DEPTH}");
            return Err(Error::new(libc::EINVAL, text));
        }
        let number = engine.queues.add(depth, engine.in_flight_limit)?;
        // SAFETY: this function's contract.
        unsafe { queue.write_unaligned(number) };
        Ok(0)
    })
}

/// Submits the first of the operations, as many as the queue has room for, and does not wait.
///
/// Each of them gets one completion, with its `user_data`, as soon as it has ended. They run at the
/// same time, in no order, and so do syncs: poll the completions of the writes that a sync shall
/// cover before it is submitted. `ops` is the caller's again when the function returns; a buffer
/// and a descriptor belong to the library until the operation's completion is polled. What is
/// registered is kept as by `cringle_submit_cb`.
///
/// `submissions` may be NULL; otherwise the number of each operation for `cringle_cancel` is stored
/// there before it starts. Any number of threads may submit to a queue and poll it.
///
/// Returns the number of operations that were submitted: less than `count`, also 0, if the queue is
/// full; poll it, and submit the rest. Otherwise none was submitted, and it returns `-EBADF` (no
/// such engine or queue, or one that is being closed), `-ESRCH`, `-EFAULT`, `-EINVAL`, `-E2BIG` or
/// `-EAGAIN` as `cringle_submit_cb`.
///
/// # Safety
///
/// `ops` has `count` elements, and so has `submissions` if it is not NULL; what belongs to the
/// library is used by no other code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cringle_queue_submit(
    io: cringle_io,
    queue: cringle_queue,
    ops: *const cringle_op,
    count: usize,
    submissions: *mut cringle_submission,
) -> c_int {
    border(|| {
        let engine = handles::get(io)?;
        let queue = engine.queues.get(queue)?;
        check_ops(ops, count)?;
        check_array(submissions, 0, "submissions")?;
        let ops = match count {
            0 => &[],
            // SAFETY: this function's contract, and the check.
            _ => unsafe { slice::from_raw_parts(ops, count) },
        };
        let submitted = queue.submit(&engine, ops, |at, number| {
            if !submissions.is_null() {
                // SAFETY: this function's contract: the index is less than `count`.
                unsafe { submissions.add(at).write(number) };
            }
        })?;
        Ok(submitted as c_int)
    })
}

/// Stores up to `count` completions in `out`, those that arrived first. If there is none, waits
/// until one arrives, at most `timeout_ms` milliseconds, or for ever if that is negative. A signal
/// does not end the wait.
///
/// Returns the number of completions, 0 if the time has passed, or `-EBADF` (no such engine or
/// queue, or it is closed and all its completions are polled), `-ESRCH`, `-EFAULT`, `-EINVAL` (also
/// a `count` of 0), or `-EDEADLK` (a callback calls it with a time other than 0).
///
/// # Safety
///
/// `out` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cringle_queue_poll(
    io: cringle_io,
    queue: cringle_queue,
    out: *mut cringle_completion,
    count: usize,
    timeout_ms: c_int,
) -> c_int {
    border(|| {
        let engine = handles::get(io)?;
        let queue = engine.queues.get(queue)?;
        check_array(out, count, "out")?;
        if count == 0 {
            return Err(Error::new(libc::EINVAL, "`count` is 0: `out` has room for no completion"));
        }
        if timeout_ms != 0 && runtime::worker().is_some() {
            let text = "cringle_queue_poll would wait in a callback: use a timeout of 0 there";
            return Err(Error::new(libc::EDEADLK, text));
        }
        let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        // SAFETY: this function's contract: the index is less than `count`.
        let store = |at, completion| unsafe { out.add(at).write(completion) };
        Ok(queue.poll(count, limit, store)? as c_int)
    })
}

/// Returns a descriptor for event loops, which is readable while completions can be polled. It is
/// the library's: only wait for it, do not read, write or close it. `cringle_queue_close` and
/// `cringle_close` close it. (With `EPOLLET`, poll the queue until it has no completion.)
///
/// Returns it, the same at each call, or `-EBADF`, `-ESRCH`, `-EMFILE` or `-ENFILE`.
#[unsafe(no_mangle)]
pub extern "C" fn cringle_queue_fd(io: cringle_io, queue: cringle_queue) -> c_int {
    border(|| handles::get(io)?.queues.get(queue)?.descriptor())
}

/// Closes a queue: refuses further operations, and waits for those that are under way; to wait for
/// less, cancel them first. Completions that were not polled are discarded, unless another thread
/// that waits in `cringle_queue_poll` gets them. Afterwards the number is refused.
///
/// Returns 0, or `-EBADF`, `-ESRCH`, or `-EDEADLK` if a callback calls it; then the queue stays
/// open.
#[unsafe(no_mangle)]
pub extern "C" fn cringle_queue_close(io: cringle_io, queue: cringle_queue) -> c_int {
    border(|| {
        let engine = handles::get(io)?;
        if runtime::worker().is_some() {
            let text = "cringle_queue_close would wait in a callback: close on another thread";
            return Err(Error::new(libc::EDEADLK, text));
        }
        let queue = engine.queues.remove(queue)?;
        queue.close();
        queue.wait_for_end();
        Ok(0)
    })
}
