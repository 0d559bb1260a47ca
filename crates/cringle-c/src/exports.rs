//! The exported functions. Each catches panics, [disables](super::cancellation) `pthread_cancel`
//! until it returns, and keeps the [words of an error](super::error) for the calling thread.

use crate::abi::*;
use crate::engine::{Engine, Job};
use crate::error::{Error, border, border_of_words, copy_text, last};
use crate::notify::Notify;
use crate::ops::Ops;
use crate::{handles, params, signals, terms, words, words_of_op};
use cringle::runtime::{self, Driver};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// The version of the binary interface of the loaded library: compare it with
/// `CRINGLE_ABI_VERSION`. A library with a larger number works with the program; one with a smaller
/// number lacks something that the header declares.
#[unsafe(no_mangle)]
pub extern "C" fn cringle_abi_version() -> u32 {
    CRINGLE_ABI_VERSION
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn cringle_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Opens an engine and stores its number in `*io`. `params` may be NULL: the defaults.
///
/// The engine's threads block all signals but those of faults, so the program's own threads get the
/// signals. (A write beyond `RLIMIT_FSIZE` is `-EFBIG`, without SIGXFSZ.) After `fork(3)` a child
/// must open an engine of its own: the parent's is `-ESRCH`. A child of `_Fork` or `clone(2)`,
/// which call no handlers, must not call the library.
///
/// No function of this library is async-signal-safe: a signal handler that has interrupted a call
/// of the library must not call it. (It may write to an eventfd or a pipe.)
///
/// `CRINGLE_WATCHDOG` in the environment is a number of milliseconds, at least 1: standard error
/// gets a line for each callback that runs longer. `locks` reports only callbacks that wait for a
/// lock for seconds. `off`, or an empty value, is the same as no value.
///
/// Returns 0, or `-EINVAL` (also for a value of `CRINGLE_WATCHDOG` or `CRINGLE_DRIVER` that is none
/// of those), `-E2BIG` (a parameter that this library does not know), or the error of the kernel:
/// see `cringle_last_error`.
///
/// # Safety
///
/// `params` is NULL or a structure whose size is its first field; `io` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cringle_open(params: *const cringle_params, io: *mut cringle_io) -> c_int {
    border(|| {
        if io.is_null() {
            return Err(null("io"));
        }
        // SAFETY: this function's contract.
        let params = unsafe { params::read_params(params) }?;
        let engine = signals::while_blocked(|| Engine::start_workers(&params))?;
        let number = handles::add(Arc::new(engine))?;
        // SAFETY: this function's contract.
        unsafe { io.write(number) };
        Ok(0)
    })
}

/// Performs the operations, and returns when all of them have ended. `results[i]` is the number of
/// bytes of `ops[i]` (0 for a sync), or `-errno`.
///
/// Any number of threads may submit at once. `ops`, `results` and the buffers are the caller's
/// again when the function returns.
///
/// Returns the number of operations that failed: 0 if all succeeded. Otherwise no operation was
/// performed, and it returns `-EBADF` (no such engine, or it is being closed), `-ESRCH` (opened
/// before `fork`), `-EFAULT` (a NULL), `-EINVAL` (a pointer that is not aligned, also if `count` is
/// 0), `-E2BIG` (more than `CRINGLE_MAX_OPS`) or `-EDEADLK` (called by a callback, of any engine);
/// the results mean nothing then.
/// `-ENOTRECOVERABLE` reports a bug of the library: then some operations may have been performed,
/// and the results mean nothing.
///
/// # Safety
///
/// `ops` and `results` have `count` elements, and do not overlap. Each buffer stays allocated until
/// the function returns, and no other code uses it meanwhile (a buffer that is written to a file
/// may be read).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cringle_submit(
    io: cringle_io,
    ops: *const cringle_op,
    count: usize,
    results: *mut i64,
) -> c_int {
    border(|| {
        let engine = handles::get(io)?;
        check(ops, count, results)?;
        if runtime::worker().is_some() {
            let text = "cringle_submit would wait in a callback: use cringle_submit_cb there";
            return Err(Error::new(libc::EDEADLK, text));
        }
        // SAFETY: this function's contract, and the check.
        engine.submit(unsafe { Ops::new(ops, results, count) })
    })
}

/// Starts the operations, and calls `callback(arg, failed)` when all of them have ended.
///
/// The operations, their buffers and the results belong to the library until the callback is
/// called. It may be called before this function returns. After a bug of the library, each result
/// is `-ENOTRECOVERABLE`, and operations may have been performed. `submission` may be NULL;
/// otherwise the number for `cringle_cancel` is stored there before the operations start.
///
/// Each submission that has begun has a stack of 1 MiB of address space, of which it uses a few
/// pages, and more than 1000 of them at once cost more each: a program keeps the number of its
/// submissions bounded, and puts many operations into each.
///
/// Returns 0, or an error of `cringle_submit` (but `-EDEADLK`), or `-EAGAIN` (16777216 submissions
/// of the engine are under way); then the callback is not called.
///
/// # Safety
///
/// As the sentence on what belongs to the library says; the callback may be called on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cringle_submit_cb(
    io: cringle_io,
    ops: *const cringle_op,
    count: usize,
    results: *mut i64,
    callback: cringle_callback,
    arg: *mut c_void,
    submission: *mut cringle_submission,
) -> c_int {
    border(|| {
        let engine = handles::get(io)?;
        check(ops, count, results)?;
        let callback = callback.ok_or_else(|| null("callback"))?;
        let notify = Notify::Callback { callback, arg };
        // SAFETY: this function's contract.
        unsafe { start(engine, Job { ops, results, count, notify }, submission) }
    })
}

/// Starts the operations. When all of them have ended, stores in `*status` what `cringle_submit`
/// would have returned, and then adds 1 to the eventfd. Until then `*status` is `CRINGLE_PENDING`.
///
/// The operations, their buffers, the results and the status belong to the library until `*status`
/// has changed; read it after the eventfd was read, or atomically. The eventfd stays open until it
/// has counted the submission, or the engine is closed. Several submissions may share it.
/// `submission` is as in `cringle_submit_cb`.
///
/// Returns 0, or an error of `cringle_submit_cb`, or `-EBADF` or `-EINVAL` if `eventfd` is none;
/// then `*status` means nothing.
///
/// # Safety
///
/// As the sentence on what belongs to the library says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cringle_submit_eventfd(
    io: cringle_io,
    ops: *const cringle_op,
    count: usize,
    results: *mut i64,
    eventfd: c_int,
    status: *mut c_int,
    submission: *mut cringle_submission,
) -> c_int {
    border(|| {
        let engine = handles::get(io)?;
        check(ops, count, results)?;
        let notify = Notify::eventfd(eventfd, status)?;
        // SAFETY: this function's contract.
        unsafe { start(engine, Job { ops, results, count, notify }, submission) }
    })
}

/// Cancels a submission, and does not wait for its end: the callback or the eventfd reports it as
/// otherwise. Operations that have not begun are not performed, and the kernel is asked to end
/// those that it performs: it ends a read that waits for data, and usually not one that waits for a
/// disk. The result of both is `-ECANCELED`. An operation that the kernel does not end, or that has
/// ended, keeps its result.
///
/// An operation of a queue is a submission. One that waits for its turn in the queue ends when its
/// turn comes.
///
/// Returns 0, or `-ESRCH` if the submission has ended, or `-EBADF`.
#[unsafe(no_mangle)]
pub extern "C" fn cringle_cancel(io: cringle_io, submission: cringle_submission) -> c_int {
    border(|| {
        if handles::get(io)?.submissions.cancel(submission) {
            return Ok(0);
        }
        Err(Error::new(libc::ESRCH, "no such submission: it has ended"))
    })
}

/// Stores the counters, and never waits. `stats->size` must be `sizeof(struct cringle_stats)`.
/// Returns 0, or `-EBADF`, `-ESRCH`, `-EFAULT` or `-EINVAL`.
///
/// # Safety
///
/// `stats` is NULL or a structure whose size is its first field.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cringle_get_stats(io: cringle_io, stats: *mut cringle_stats) -> c_int {
    border(|| {
        let engine = handles::get(io)?;
        if stats.is_null() {
            return Err(null("stats"));
        }
        // SAFETY: this function's contract.
        unsafe { params::write_stats(&engine.stats(), stats) }?;
        Ok(0)
    })
}

/// Returns how the operations reach the kernel, `CRINGLE_DRIVER_URING` or `CRINGLE_DRIVER_EPOLL`
/// (threads), without a wait,
/// and copies the reason to `why` (at most `size - 1` bytes and a 0): the features of the ring, or
/// what refused it, with the remedy. `why` may be NULL if `size` is 0. Returns `-EBADF` or `-ESRCH`
/// if there is no such engine.
///
/// # Safety
///
/// `why` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cringle_driver(io: cringle_io, why: *mut c_char, size: usize) -> c_int {
    border(|| {
        let engine = handles::get(io)?;
        let (driver, text) = match &engine.driver {
            Driver::Epoll(reason) => {
                (CRINGLE_DRIVER_EPOLL, terms::of_c(format!("threads: {reason}")))
            }
            Driver::Uring(features) => (CRINGLE_DRIVER_URING, format!("io_uring: {features:?}")),
            other => (CRINGLE_DRIVER_AUTO, format!("{other:?}")),
        };
        // SAFETY: this function's contract.
        unsafe { copy_text(&text, why, size) };
        Ok(driver as c_int)
    })
}

/// Copies the meaning of a result or of a returned error, with the remedy, to `text` (at most
/// `size - 1` bytes and a 0). Returns the length of the whole text, as `snprintf`.
///
/// # Safety
///
/// `text` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cringle_strerror(error: i64, text: *mut c_char, size: usize) -> usize {
    // SAFETY: this function's contract.
    unsafe { border_of_words(|| words::of_result(error).into(), text, size) }
}

/// Copies the words for the result of an operation, as `cringle_strerror` does: what was asked of
/// which file, what is wrong with it, and the remedy. For a direct read or write, they name what is
/// not aligned.
///
/// # Safety
///
/// `op` is NULL or valid for a read; `text` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cringle_op_error(
    io: cringle_io,
    op: *const cringle_op,
    result: i64,
    text: *mut c_char,
    size: usize,
) -> usize {
    let words = || {
        let engine = handles::get(io).ok();
        // SAFETY: this function's contract.
        match unsafe { op.as_ref() } {
            Some(op) => words_of_op::of_op(engine.as_deref(), op, result).into(),
            None => words::of_result(result).into(),
        }
    };
    // SAFETY: this function's contract.
    unsafe { border_of_words(words, text, size) }
}

/// Copies the words of the last failure of a function of this library on the calling thread, as
/// `cringle_strerror` does. They say which argument was wrong, or what refused the call.
///
/// # Safety
///
/// `text` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cringle_last_error(text: *mut c_char, size: usize) -> usize {
    // SAFETY: this function's contract.
    unsafe { border_of_words(last, text, size) }
}

/// Closes an engine: refuses further submissions, waits for those that are under way and for their
/// callbacks, closes the queues, and ends the threads. Afterwards the number is refused. Of several
/// threads that close an engine, one gets 0, and the others `-EBADF` when it is closed.
///
/// Returns 0, or `-EBADF`, `-ESRCH`, or `-EDEADLK` if a callback calls it, of this engine or
/// another one; then the engine stays open.
#[unsafe(no_mangle)]
pub extern "C" fn cringle_close(io: cringle_io) -> c_int {
    border(|| {
        let engine = handles::get(io)?;
        if runtime::worker().is_some() {
            let text = "cringle_close would wait in a callback: close on another thread";
            return Err(Error::new(libc::EDEADLK, text));
        }
        engine.queues.close();
        engine.io.close()?;
        handles::remove(io)?;
        Ok(0)
    })
}

#[cold]
pub(crate) fn null(name: &str) -> Error {
    Error::new(libc::EFAULT, format!("`{name}` is NULL"))
}

fn check(ops: *const cringle_op, count: usize, results: *mut i64) -> Result<(), Error> {
    check_ops(ops, count)?;
    check_array(results, count, "results")
}

pub(crate) fn check_ops(ops: *const cringle_op, count: usize) -> Result<(), Error> {
    if count > CRINGLE_MAX_OPS as usize {
        let text = format!("{count} operations: at most {CRINGLE_MAX_OPS} fit in a submission");
        return Err(Error::new(libc::E2BIG, text));
    }
    check_array(ops, count, "ops")
}

/// Checks an array of elements that are aligned to 8 bytes.
pub(crate) fn check_array<T>(array: *const T, count: usize, name: &str) -> Result<(), Error> {
    if count > 0 && array.is_null() {
        return Err(null(name));
    }
    if !array.is_aligned() {
        return Err(Error::new(libc::EINVAL, format!("`{name}` is not aligned to 8 bytes")));
    }
    Ok(())
}

/// Starts a submission whose arguments are checked.
///
/// # Safety
///
/// `submission` is NULL or valid for a write; the job is as the exported functions say.
unsafe fn start(
    engine: Arc<Engine>,
    job: Job,
    submission: *mut cringle_submission,
) -> Result<c_int, Error> {
    engine.start(job, |number| {
        if !submission.is_null() {
            // SAFETY: this function's contract.
            unsafe { submission.write(number) };
        }
    })?;
    Ok(0)
}
