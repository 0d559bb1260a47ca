//! Performing one operation for a fiber, from submission to result.
//!
//! # Where threads are scarce
//!
//! Where the kernel cannot start a thread for an op (`RLIMIT_NPROC`, `pids.max`, a pending signal),
//! it drops the op after up to 50 ms, with `ECANCELED`. The fiber tries once more. Then it makes
//! the plain call, on the pool, or on the worker's thread if the pool has no thread either. The
//! worker remembers the lack for a second; meanwhile ops that [may need a
//! thread](Op::may_need_thread) are plain calls at once. A ring that was made under an
//! `RLIMIT_NPROC` of 0 lacks threads from the start (`worker/perform.rs` of `cringle-core`).
//!
//! At the cursor of a device, the fiber first waits until the device is ready, because a poll needs
//! no thread. A terminal then gets a few bytes at a time, so that the call does not wait. Pipes and
//! sockets stay on the ring, which polls them itself. If the kernel drops an op on a pipe or a
//! socket many times, the op returns the error.

use cringle_core::wait_target::{Target, TargetInfo, TargetKind, WaitTarget};
use cringle_core::worker::{Current, Here, Worker};
use cringle_driver::{Memory, Op, OpDescription, OpName, Way, blocking, means_cancelled};
use cringle_sys as sys;
use std::io;
use std::mem::offset_of;
use std::time::Duration;

/// Performs `op` while the fiber waits. A fiber that is already cancelled is refused; a result wins
/// over a later cancel.
#[inline(always)]
pub fn perform(current: Current, op: Op) -> io::Result<usize> {
    current.admit()?;
    #[cfg(debug_assertions)]
    check(current, &op);
    let result = perform_to_the_end(current, op);
    cringle_core::emit!(TRACE, op = op.name().as_str(), result, "an operation has ended");
    outcome(current, result)
}

/// Asserts that a regular file is accessed as **I8** and **I11** say. A simulation's files have
/// numbers of their own.
#[cfg(debug_assertions)]
fn check(current: Current, op: &Op) {
    let unwinds = current.is_unwinding();
    let at_cursor = op.is_stream_transfer();
    let file = op.describe().file;
    let is_transfer = op.is_read() || op.is_write();
    if !(is_transfer && (unwinds || at_cursor)) || file < 0 || !current.worker.may_bypass() {
        return;
    }
    // A regular file without a cursor, such as a namespace's, refuses each transfer.
    if sys::mode(file) & libc::S_IFMT == libc::S_IFREG && sys::cursor(file).is_some() {
        assert!(!unwinds, "I8: an unwinding fiber makes the plain call");
        let appends = op.is_write() && sys::status_flags(file) & libc::O_APPEND != 0;
        assert!(!at_cursor || appends, "I11: an op at the cursor of a seekable file");
    }
}

/// Performs an op that waits for a peer, for at most `limit`. Returns `None` if the time has
/// passed.
#[cold]
pub fn perform_within(current: Current, op: Op, limit: Duration) -> io::Result<Option<usize>> {
    let Some(at) = current.worker.now().checked_add(limit) else {
        return perform(current, op).map(Some);
    };
    current.admit()?;
    loop {
        let result = current.perform_one_until(op, at);
        if !was_dropped(current, result) {
            return outcome(current, result).map(Some);
        }
        if current.worker.now() >= at {
            return Ok(None);
        }
        current.yield_now();
    }
}

/// The number of times that an op without a plain call is tried. It waits for a socket or a pipe,
/// so the kernel needs a thread for it only if others take what it waits for again and again.
const MOST_TRIES: u32 = 16;

/// The most bytes of a plain write to a terminal. One that is ready takes them without a wait, even
/// if each is a line feed that becomes two bytes: a pseudoterminal has room for 256 then.
const TERMINAL_BYTES: u32 = 128;

/// Performs `op`, again if the kernel dropped it, and returns its result.
#[inline(always)]
pub fn perform_to_the_end(current: Current, op: Op) -> i32 {
    if op.may_need_thread()
        && current.worker.thread_lack.lasts()
        && let Some(result) = perform_plainly(current, op)
    {
        return result;
    }
    let result = current.perform_one(op);
    if was_dropped(current, result) && !matches!(op, Op::Raw(_)) {
        repeat(current, op)
    } else {
        result
    }
}

/// Returns whether the kernel cancelled an op on its own. It does so if it needs a kernel thread
/// for the op, has none yet, and cannot start one: because of a pending signal, or because threads
/// are scarce (`RLIMIT_NPROC`, `pids.max`). The op has not begun then.
#[inline]
pub fn was_dropped(current: Current, result: i32) -> bool {
    result == -libc::ECANCELED && !current.is_interrupted()
}

/// Performs an op that the kernel has dropped once. If the kernel drops it again, threads are
/// scarce, and the plain call performs it.
#[cold]
fn repeat(current: Current, op: Op) -> i32 {
    let mut tries = 1;
    // A simulation drops ops, but lacks no threads.
    let may_lack_threads = current.worker.may_bypass();
    while tries < MOST_TRIES || !may_lack_threads {
        if current.worker.thread_lack.lasts()
            && let Some(result) = perform_plainly(current, op)
        {
            return result;
        }
        current.yield_now();
        let result = current.perform_one(op);
        if !was_dropped(current, result) {
            return result;
        }
        if may_lack_threads {
            current.worker.thread_lack.note();
        }
        tries += 1;
    }
    -libc::ECANCELED
}

/// Performs an op by its plain call, where that is right: see [`plain_of`]. A device may wait for a
/// peer, so the fiber waits until it is ready; a poll needs no thread.
#[cold]
#[inline(never)]
fn perform_plainly(current: Current, op: Op) -> Option<i32> {
    let mut op = plain_of(current.worker, op)?;
    // The call may be made on this thread.
    current.yield_now();
    if !op.waits_for_peer() {
        // SAFETY: I1. The frame that waits for the op holds what its pointers point to.
        return Some(unsafe { perform_on_pool(op) });
    }
    let fd = op.describe().file;
    let events = if op.is_read() { libc::POLLIN } else { libc::POLLOUT };
    let ready = current.perform_one(Op::Poll { fd, events: events as u32 });
    if ready == -libc::ECANCELED {
        return Some(ready);
    }
    if let Op::Transfer(transfer) = op
        && let (Way::Write, Memory::Bytes { start, len }) = (transfer.way, transfer.memory())
        && sys::is_terminal(fd)
    {
        let memory = Memory::Bytes { start, len: len.min(TERMINAL_BYTES) };
        op = Op::Transfer(transfer.with_memory(memory));
    }
    // SAFETY: as above.
    Some(unsafe { perform_off_ring(current.worker, op) })
}

/// The op as the plain call may perform it: it has a descriptor, and waits for no peer or only for
/// a device. (A write at the cursor of a regular file appends.)
fn plain_of(worker: Here, op: Op) -> Option<Op> {
    let op = on_descriptor(worker, op)?;
    let is_file = || {
        let kind = sys::mode(op.describe().file) & libc::S_IFMT;
        matches!(kind, libc::S_IFREG | libc::S_IFCHR | libc::S_IFBLK)
    };
    (!op.waits_for_peer() || is_file()).then_some(op)
}

/// The op on a plain descriptor. `None` for a registered file that is not regular.
pub fn on_descriptor(worker: Here, op: Op) -> Option<Op> {
    let Some(slot) = op.describe().fixed() else { return Some(op) };
    let fd = worker.driver().borrow().registered_file(slot)?;
    sys::file_kind(fd).regular.then(|| op.on_descriptor(fd))
}

/// Turns an op's result into the result of the fiber's call.
#[inline]
pub fn outcome(current: Current, result: i32) -> io::Result<usize> {
    if result < 0 && means_cancelled(result) && current.is_interrupted() {
        return Err(current.fiber.cancel_error());
    }
    sys::result_of(result)
}

/// Calls `f` on the library's small pool, or on this thread if the pool cannot start one. For calls
/// that no ring performs. `f` must not wait for other processes or fibers.
fn call<T: Send>(subject: Target<'_>, f: impl FnOnce() -> T + Send) -> T {
    let pool = Worker::here().map(|worker| std::sync::Arc::clone(&worker.shared().call_pool));
    match pool {
        Some(pool) => super::unblock::call_on_or_here(&pool, Some(subject), f),
        None => f(),
    }
}

/// Performs an op by its plain call on the small pool. For ops that no ring has, and for ops on a
/// regular file that the ring answered with `EAGAIN`: the plain call's result is final. XFS returns
/// `EAGAIN` occasionally; a file system without `NOWAIT` support returns it always if the file has
/// `O_NONBLOCK`; an attribute in `/sys` may return it as its real result, so that a retry would
/// loop.
///
/// # Safety
///
/// The op's pointers are valid for the call.
#[cold]
pub unsafe fn perform_on_pool(op: Op) -> i32 {
    let sent = Sent(op);
    call(Target::of(&PoolCall::of(&op)), move || {
        let Sent(op) = { sent };
        // SAFETY: by this function's contract.
        unsafe { blocking::perform(&op) }
    })
}

/// Performs a read or a write by its plain call, for a file that a ring would access at the wrong
/// offsets. The call may wait for another process, the server of the file system, so it runs on the
/// pool that grows as needed.
///
/// # Safety
///
/// The op's pointers are valid for the call.
#[cold]
pub(crate) unsafe fn perform_off_ring(worker: Here, op: Op) -> i32 {
    let sent = Sent(op);
    let pool = &worker.shared().unblock_pool;
    super::unblock::call_on_or_here(pool, Some(Target::of(&PoolCall::of(&op))), move || {
        let Sent(op) = { sent };
        // SAFETY: by this function's contract.
        unsafe { blocking::perform(&op) }
    })
}

/// An op on its way to a thread of a pool.
struct Sent(Op);

// SAFETY: I1. The memory that the op points to is borrowed by a caller that waits until the call
// has ended.
unsafe impl Send for Sent {}

/// The description of an op that a pool performs. It lies in the frame that waits for the call.
struct PoolCall {
    name: OpName,
    file: i32,
    place: u64,
}

impl PoolCall {
    fn of(op: &Op) -> PoolCall {
        let (file, place) = op.file_and_place();
        PoolCall { name: op.name(), file, place }
    }
}

impl WaitTarget for PoolCall {
    const KIND: TargetKind = TargetKind::Call;
    const PARTS: &[usize] =
        &[offset_of!(PoolCall, name), offset_of!(PoolCall, file), offset_of!(PoolCall, place)];

    fn info(&self) -> TargetInfo {
        let about = OpDescription { name: self.name, file: self.file, place: Some(self.place) };
        // SAFETY: I1. The memory that the op points to stays until the call has returned, and the
        // fiber is waiting for that.
        let path = unsafe { about.path() };
        TargetInfo::Call { about, path }
    }
}
