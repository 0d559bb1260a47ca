//! Attempts at ops, without waiting.
//!
//! Descriptors are blocking, so each call needs a way to return at once:
//!
//! | file | how |
//! |---|---|
//! | sockets | `MSG_DONTWAIT`; `accept` and `connect` have `O_NONBLOCK` for a while |
//! | pipes (except on Linux 6.1), files in the page cache, most others | `RWF_NOWAIT` |
//! | named FIFOs, pipes on Linux 6.1, terminals, inotify | `poll(2)`, then the call |
//! | files that wait for storage | a thread of the pool |
//!
//! The files of the third row do not support `RWF_NOWAIT`. Between `poll(2)` and the call, another
//! reader may take the data, and the call then waits. So all workers of the process do both steps
//! under one lock. Nothing helps against another *process* that reads from the same terminal or
//! FIFO: the worker then waits for the next line, as a ring does for a terminal.

use super::flight::Flight;
use super::wait_queues::Direction;
use crate::op::AT_CURSOR;
use crate::{Memory, Op, PathOp, Target, Transfer, Way};
use cringle_sys::fork::ForkLock;
use cringle_sys::{self as sys, syscall};
use std::ffi::c_char;
use std::os::fd::RawFd;

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done(i32),
    /// It would wait until the descriptor is ready.
    Wait(RawFd, Direction),
    /// It waits for storage: for the bounded pool.
    Offload,
    /// It may wait for any length of time: for the unbounded pool.
    OffloadUnbounded,
}

pub(super) const WOULD_WAIT: i32 = -libc::EAGAIN;
/// The file does not support `RWF_NOWAIT`.
const NOWAIT_UNSUPPORTED: i32 = -libc::EOPNOTSUPP;
/// The file has no offsets.
const NOT_SEEKABLE: i32 = -libc::ESPIPE;

/// A write of at most this many bytes to a pipe that is ready does not wait.
const PIPE_BUF: usize = 4096;

/// Held from `poll(2)` to the call that would wait if another worker took the data.
static POLL_THEN_CALL: ForkLock<()> = ForkLock::new(());

/// The status flags of the last file: the ops of a batch are often on one file.
#[derive(Default)]
pub(super) struct LastFile(Option<(RawFd, i32)>);

impl LastFile {
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    pub(super) fn flags(&mut self, fd: RawFd) -> i32 {
        match self.0 {
            Some((last, flags)) if last == fd => flags,
            _ => {
                let flags = sys::status_flags(fd);
                self.0 = Some((fd, flags));
                flags
            }
        }
    }
}

impl Flight {
    /// Attempts the op. `is_event`: an event has just reported the descriptor as ready.
    ///
    /// # Safety
    ///
    /// I1: what the op points to is valid.
    pub(super) unsafe fn attempt(&mut self, last: &mut LastFile, is_event: bool) -> Outcome {
        // SAFETY: by the contract, which is also the contract of each call.
        unsafe {
            match self.op {
                Op::Nop => Outcome::Done(0),
                Op::Transfer(Transfer { way, file, offset, .. }) => match (way, offset) {
                    (Way::Read, AT_CURSOR) => self.read_stream(file.number(), is_event),
                    (Way::Write, AT_CURSOR) => self.write_stream(file.number()),
                    (Way::Read, _) => self.read_at(file.number(), last),
                    (Way::Write, _) => self.write_at(file.number()),
                },
                Op::Path(PathOp::Open { dir, path, flags, .. }) => open_cached(dir, path, flags),
                Op::Socket(transfer) => self.transfer(transfer, is_event),
                Op::Accept { fd, .. } => self.accept(fd),
                Op::Connect { fd, .. } => self.connect(fd),
                Op::Poll { fd, events } => match poll_now(fd, events as i16) {
                    0 => Outcome::Wait(fd, Direction::Events),
                    ready => Outcome::Done(ready),
                },
                // They have a meaning only for a ring.
                Op::Raw(_) | Op::FutexWait { .. } => Outcome::Done(-libc::EOPNOTSUPP),
                Op::File(_) | Op::Path(_) | Op::Syscall(_) => Outcome::Offload,
            }
        }
    }

    /// Reads what the page cache holds, and offloads the rest.
    ///
    /// # Safety
    ///
    /// As for [`attempt`](Self::attempt).
    unsafe fn read_at(&mut self, fd: RawFd, last: &mut LastFile) -> Outcome {
        // A direct read waits for the disk, `RWF_NOWAIT` or not.
        if last.flags(fd) & libc::O_DIRECT != 0 {
            return Outcome::Offload;
        }
        loop {
            // SAFETY: by the contract; the call has moved `result` bytes.
            let (result, more) = unsafe {
                let result = self.call_nowait();
                (result, result > 0 && self.advance(result as u32))
            };
            match result {
                _ if more => {}
                WOULD_WAIT | NOWAIT_UNSUPPORTED => return Outcome::Offload,
                NOT_SEEKABLE => {
                    self.drop_offset();
                    // SAFETY: by the contract.
                    return unsafe { self.read_stream(fd, false) };
                }
                error if error < 0 => return Outcome::Done(self.total(error)),
                _ => return Outcome::Done(self.total(0)),
            }
        }
    }

    /// Writes to a file without storage, and offloads all others: most file systems do not support
    /// `RWF_NOWAIT` for writes, and all of them wait while they are frozen.
    ///
    /// # Safety
    ///
    /// As for [`attempt`](Self::attempt).
    unsafe fn write_at(&mut self, fd: RawFd) -> Outcome {
        if waits_for_storage(fd) {
            return Outcome::Offload;
        }
        // SAFETY: by the contract.
        match unsafe { self.call_nowait() } {
            WOULD_WAIT | NOWAIT_UNSUPPORTED => Outcome::Offload,
            NOT_SEEKABLE => {
                self.drop_offset();
                // SAFETY: by the contract.
                unsafe { self.write_stream(fd) }
            }
            result => Outcome::Done(result),
        }
    }

    /// Removes the offset of a file without offsets (a pipe, an eventfd), as a ring ignores it.
    fn drop_offset(&mut self) {
        let Op::Transfer(transfer) = &mut self.op else { unreachable!("a read or a write") };
        transfer.offset = AT_CURSOR;
    }

    /// Reads from a file without offsets.
    ///
    /// # Safety
    ///
    /// As for [`attempt`](Self::attempt).
    unsafe fn read_stream(&mut self, fd: RawFd, is_event: bool) -> Outcome {
        // SAFETY: by the contract.
        match unsafe { self.call_nowait() } {
            WOULD_WAIT => return Outcome::Wait(fd, Direction::In),
            NOWAIT_UNSUPPORTED => {}
            result => return Outcome::Done(result),
        }
        if waits_for_storage(fd) {
            return Outcome::Offload;
        }
        if is_event || self.cancelled {
            // SAFETY: by the contract.
            unsafe { self.call_if_ready(fd, Direction::In) }
        } else {
            Outcome::Wait(fd, Direction::In)
        }
    }

    /// Writes to a file without offsets, or appends.
    ///
    /// # Safety
    ///
    /// As for [`attempt`](Self::attempt).
    unsafe fn write_stream(&mut self, fd: RawFd) -> Outcome {
        if waits_for_storage(fd) {
            // An append must be one call: other writers append, too.
            return Outcome::Offload;
        }
        // SAFETY: by the contract.
        match unsafe { self.call_nowait() } {
            WOULD_WAIT => Outcome::Wait(fd, Direction::Out),
            // SAFETY: by the contract.
            NOWAIT_UNSUPPORTED if sys::is_fifo(fd) => unsafe {
                self.call_if_ready(fd, Direction::Out)
            },
            // A terminal that is ready may not have room for all bytes.
            NOWAIT_UNSUPPORTED => Outcome::OffloadUnbounded,
            result => Outcome::Done(result),
        }
    }

    /// Calls `poll(2)`, then makes the call if it would not wait.
    ///
    /// # Safety
    ///
    /// As for [`attempt`](Self::attempt).
    unsafe fn call_if_ready(&mut self, fd: RawFd, direction: Direction) -> Outcome {
        let _guard = POLL_THEN_CALL.lock();
        if !is_ready(fd, direction) {
            return Outcome::Wait(fd, direction);
        }
        // SAFETY: by the contract.
        Outcome::Done(unsafe { self.call_pipe_sized() })
    }

    /// Calls `preadv2` or `pwritev2` with `RWF_NOWAIT`.
    ///
    /// # Safety
    ///
    /// As for [`attempt`](Self::attempt).
    unsafe fn call_nowait(&self) -> i32 {
        let transfer = self.op.transfer().expect("a read or a write");
        let Transfer { way, file, offset, .. } = transfer;
        let one;
        let (slices, count) = match transfer.memory() {
            Memory::Bytes { start, len } => {
                one = libc::iovec { iov_base: start.cast(), iov_len: len as usize };
                (&raw const one, 1)
            }
            Memory::Slices { slices, count } => (slices, count),
        };
        let (fd, flags) = (file.number(), transfer.flags() | libc::RWF_NOWAIT);
        // The offset of the cursor, −1, has the bits of `AT_CURSOR`.
        // SAFETY: by the contract, the slices name memory that is lent for the op.
        let result = retry(|| unsafe {
            match way {
                Way::Read => syscall!(SYS_preadv2, fd, slices, count, offset, 0, flags),
                Way::Write => syscall!(SYS_pwritev2, fd, slices, count, offset, 0, flags),
            }
        });
        // QEMU's emulation of a process lacks the calls, and a filter may.
        if result == -libc::ENOSYS { NOWAIT_UNSUPPORTED } else { result }
    }

    /// Makes the blocking call, for at most as many bytes as a ready pipe accepts at once.
    ///
    /// # Safety
    ///
    /// As for [`attempt`](Self::attempt).
    unsafe fn call_pipe_sized(&self) -> i32 {
        let transfer = self.op.transfer().expect("a read or a write");
        let fd = transfer.file.number();
        // SAFETY: by the contract, the slices name memory that is lent for the op.
        retry(|| unsafe {
            match (transfer.way, transfer.memory()) {
                (Way::Read, Memory::Bytes { start, len }) => syscall!(SYS_read, fd, start, len),
                (Way::Read, Memory::Slices { slices, count }) => {
                    syscall!(SYS_readv, fd, slices, count)
                }
                (Way::Write, Memory::Bytes { start, len }) => {
                    syscall!(SYS_write, fd, start, (len as usize).min(PIPE_BUF))
                }
                (Way::Write, Memory::Slices { slices, count }) => {
                    let all = std::slice::from_raw_parts(slices, count as usize);
                    if all.iter().map(|slice| slice.iov_len).sum::<usize>() <= PIPE_BUF {
                        return syscall!(SYS_writev, fd, slices, count);
                    }
                    let first =
                        all.iter().find(|slice| slice.iov_len > 0).expect("the sum is not 0");
                    syscall!(SYS_write, fd, first.iov_base, first.iov_len.min(PIPE_BUF))
                }
            }
        })
    }
}

/// Whether the kernel reports a descriptor as ready. If it does although a call would have waited,
/// it would report the same event again at once.
pub(super) fn is_ready(fd: RawFd, direction: Direction) -> bool {
    poll_now(fd, if direction == Direction::In { libc::POLLIN } else { libc::POLLOUT }) != 0
}

/// Calls `poll(2)` without waiting. Returns the ready events, or a negated errno.
fn poll_now(fd: RawFd, events: i16) -> i32 {
    let mut poll = libc::pollfd { fd, events, revents: 0 };
    match retry(|| sys::poll_once(&mut poll, Some(&sys::NOW))) {
        error if error < 0 => error,
        _ => poll.revents.into(),
    }
}

/// Opens a file whose path is in the kernel's cache, and offloads all others. The kernel does not
/// create or truncate files this way.
///
/// # Safety
///
/// The path is a valid C string.
unsafe fn open_cached(dir: RawFd, path: *const c_char, flags: i32) -> Outcome {
    // SAFETY: an `open_how` may be all-zero.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    (how.flags, how.resolve) = (flags as u64, libc::RESOLVE_CACHED);
    let size = size_of::<libc::open_how>();
    // SAFETY: by the contract; the structure is borrowed for the call.
    match retry(|| unsafe { syscall!(SYS_openat2, dir, path, &raw const how, size) }) {
        fd if fd >= 0 => Outcome::Done(fd),
        // The open would wait, or fails this way: the blocking call decides.
        _ => Outcome::Offload,
    }
}

/// Whether calls on the file wait for storage.
fn waits_for_storage(fd: RawFd) -> bool {
    matches!(sys::mode(fd) & libc::S_IFMT, libc::S_IFREG | libc::S_IFBLK | libc::S_IFDIR)
}

/// Makes the raw call, again after `EINTR`. Returns its count, or a negated errno.
pub(super) fn retry(mut call: impl FnMut() -> isize) -> i32 {
    loop {
        let result = call() as i32;
        if result != -libc::EINTR {
            return result;
        }
    }
}

/// The op with the descriptor of a registered file in place of its index.
pub(super) fn with_descriptor(op: &Op, find: impl Fn(i32) -> Option<RawFd>) -> Op {
    let mut op = *op;
    if let Op::Transfer(Transfer { file, .. }) = &mut op
        && file.is_fixed()
    {
        *file = Target::fd(find(file.number()).unwrap_or(-1));
    }
    op
}
