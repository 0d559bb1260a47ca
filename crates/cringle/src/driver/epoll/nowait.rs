//! Trying an op without waiting. Descriptors are blocking ones, so each call needs a direction to say that it is
//! not to wait:
//!
//! | what | how |
//! |---|---|
//! | sockets | `MSG_DONTWAIT` |
//! | `accept`, `connect` | `O_NONBLOCK` for a while: see [`nonblocking`](super::nonblocking) |
//! | pipes (not those of Linux 6.1), files in the page cache, much else | `RWF_NOWAIT` |
//! | FIFOs with a name, those pipes, terminals, inotify | they know no `RWF_NOWAIT`: `poll(2)`, and then the call |
//! | what only waits for its storage | the pool |
//!
//! Between `poll(2)` and the call, somebody else may take what was there, and the call waits after all. So
//! the two are one step for all workers of the process. Against another *process* that reads from the same
//! terminal or FIFO nothing helps: the worker waits for the next line then, as it does on the ring for a
//! terminal.

use super::flight::Flight;
use super::wait_queues::Direction;
use crate::driver::nonblocking::Hold;
use crate::driver::op::AT_CURSOR;
use crate::driver::{Op, Target};
use crate::sys;
use std::ffi::c_char;
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done(i32),
    /// Not before the descriptor is ready.
    Wait(RawFd, Direction),
    /// For a thread of the pool: it waits for its storage.
    Offload,
    /// The same, for as long as it takes.
    OffloadUnbounded,
}

const WOULD_WAIT: i32 = -libc::EAGAIN;
/// It cannot be asked not to wait.
const NOWAIT_UNSUPPORTED: i32 = -libc::EOPNOTSUPP;
/// It is no file with places to read at.
const NOT_SEEKABLE: i32 = -libc::ESPIPE;
const IN_PROGRESS: i32 = -libc::EINPROGRESS;

/// A write of so many bytes to a pipe that is ready does not wait.
const PIPE_BUF: usize = 4096;

/// Held between the question whether a call would wait and the call.
static POLL_THEN_CALL: Mutex<()> = Mutex::new(());

/// What is known of the file that was outcome last: ops of a batch are on the same.
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
    /// Tries it. `told`: the kernel has said that it would not wait now.
    ///
    /// # Safety
    ///
    /// I1: what the op points to is there.
    pub(super) unsafe fn attempt(&mut self, last: &mut LastFile, told: bool) -> Outcome {
        // SAFETY: by the contract, handed on to each.
        unsafe {
            match self.op {
                Op::Nop => Outcome::Done(0),
                Op::Read { target, offset: AT_CURSOR, .. } => {
                    self.read_stream(target.number(), told)
                }
                Op::ReadVectored { fd, offset: AT_CURSOR, .. } => self.read_stream(fd, told),
                Op::Write { target, offset: AT_CURSOR, .. } => self.write_stream(target.number()),
                Op::WriteVectored { fd, offset: AT_CURSOR, .. } => self.write_stream(fd),
                Op::Read { target, .. } | Op::ReadFixed { target, .. } => {
                    self.read_at(target.number(), last)
                }
                Op::Write { target, .. } | Op::WriteFixed { target, .. } => {
                    self.write_at(target.number())
                }
                Op::ReadVectored { fd, .. } => self.read_at(fd, last),
                Op::WriteVectored { fd, .. } => self.write_at(fd),
                Op::Open { dir, path, flags, .. } => open_cached(dir, path, flags),
                Op::Recv { fd, flags, .. } | Op::RecvMsg { fd, flags, .. } => {
                    self.transfer(fd, flags, Direction::In, told)
                }
                Op::Send { fd, flags, .. }
                | Op::SendZc { fd, flags, .. }
                | Op::SendMsg { fd, flags, .. } => self.transfer(fd, flags, Direction::Out, told),
                Op::Accept { fd, .. } => self.accept(fd),
                Op::Connect { fd, .. } => self.connect(fd),
                Op::Poll { fd, events } => match poll_now(fd, events as i16) {
                    0 => Outcome::Wait(fd, Direction::Events),
                    ready => Outcome::Done(ready),
                },
                // A raw entry means something to a ring only.
                Op::Raw(_) => Outcome::Done(-libc::EOPNOTSUPP),
                _ => Outcome::Offload,
            }
        }
    }

    /// What the page cache has, and the rest aside.
    unsafe fn read_at(&mut self, fd: RawFd, last: &mut LastFile) -> Outcome {
        // It waits for the disk, `RWF_NOWAIT` or not.
        if last.flags(fd) & libc::O_DIRECT != 0 {
            return Outcome::Offload;
        }
        loop {
            // SAFETY: by the caller's contract; the call has moved so many bytes.
            let (result, more) = unsafe {
                let result = self.call_nowait();
                (result, result > 0 && self.advance(result as u32))
            };
            match result {
                _ if more => {}
                WOULD_WAIT | NOWAIT_UNSUPPORTED => return Outcome::Offload,
                NOT_SEEKABLE => {
                    self.drop_offset();
                    // SAFETY: by the caller's contract.
                    return unsafe { self.read_stream(fd, false) };
                }
                error if error < 0 => return Outcome::Done(self.total(error)),
                _ => return Outcome::Done(self.total(0)),
            }
        }
    }

    /// To a file: aside, as most file systems do not know how not to wait, and all wait while they are
    /// frozen.
    unsafe fn write_at(&mut self, fd: RawFd) -> Outcome {
        if waits_for_storage(fd) {
            return Outcome::Offload;
        }
        // SAFETY: by the caller's contract.
        match unsafe { self.call_nowait() } {
            WOULD_WAIT | NOWAIT_UNSUPPORTED => Outcome::Offload,
            NOT_SEEKABLE => {
                self.drop_offset();
                // SAFETY: by the caller's contract.
                unsafe { self.write_stream(fd) }
            }
            result => Outcome::Done(result),
        }
    }

    /// A ring ignores the offset of a file without positions (a pipe, an event counter). A registered buffer is
    /// memory like any other here.
    fn drop_offset(&mut self) {
        let offset = AT_CURSOR;
        self.op = match self.op {
            Op::Read { target, buf, len, .. } | Op::ReadFixed { target, buf, len, .. } => {
                Op::Read { target, buf, len, offset }
            }
            Op::Write { target, buf, len, .. } | Op::WriteFixed { target, buf, len, .. } => {
                Op::Write { target, buf, len, offset }
            }
            Op::ReadVectored { fd, slices, count, .. } => {
                Op::ReadVectored { fd, slices, count, offset }
            }
            Op::WriteVectored { fd, slices, count, .. } => {
                Op::WriteVectored { fd, slices, count, offset }
            }
            other => other,
        };
    }

    unsafe fn read_stream(&mut self, fd: RawFd, told: bool) -> Outcome {
        // SAFETY: by the caller's contract.
        match unsafe { self.call_nowait() } {
            WOULD_WAIT => return Outcome::Wait(fd, Direction::In),
            NOWAIT_UNSUPPORTED => {}
            result => return Outcome::Done(result),
        }
        if waits_for_storage(fd) {
            return Outcome::Offload;
        }
        match told || self.cancelled {
            // SAFETY: by the caller's contract.
            true => unsafe { self.call_if_ready(fd, Direction::In) },
            false => Outcome::Wait(fd, Direction::In),
        }
    }

    unsafe fn write_stream(&mut self, fd: RawFd) -> Outcome {
        if waits_for_storage(fd) {
            // In one piece, where it is at the file's end that others write to, too.
            return Outcome::Offload;
        }
        // SAFETY: by the caller's contract.
        match unsafe { self.call_nowait() } {
            WOULD_WAIT => Outcome::Wait(fd, Direction::Out),
            // SAFETY: by the caller's contract.
            NOWAIT_UNSUPPORTED if sys::is_fifo(fd) => unsafe {
                self.call_if_ready(fd, Direction::Out)
            },
            // A terminal that is ready may not have room for all.
            NOWAIT_UNSUPPORTED => Outcome::OffloadUnbounded,
            result => Outcome::Done(result),
        }
    }

    unsafe fn call_if_ready(&mut self, fd: RawFd, direction: Direction) -> Outcome {
        let _guard = POLL_THEN_CALL.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_ready(fd, direction) {
            return Outcome::Wait(fd, direction);
        }
        // SAFETY: by the caller's contract.
        Outcome::Done(unsafe { self.call_pipe_sized() })
    }

    /// `preadv2` or `pwritev2` that does not wait.
    unsafe fn call_nowait(&self) -> i32 {
        let one =
            |buf: *mut u8, len: u32| libc::iovec { iov_base: buf.cast(), iov_len: len as usize };
        // At the cursor: −1, the same bits.
        // SAFETY: by the caller's contract, the slices name memory that is lent for the op.
        retry(|| unsafe {
            match self.op {
                Op::Read { target, buf, len, offset }
                | Op::ReadFixed { target, buf, len, offset, .. } => libc::preadv2(
                    target.number(),
                    &one(buf, len),
                    1,
                    offset as i64,
                    libc::RWF_NOWAIT,
                ),
                Op::Write { target, buf, len, offset }
                | Op::WriteFixed { target, buf, len, offset, .. } => {
                    let slice = one(buf.cast_mut(), len);
                    libc::pwritev2(target.number(), &slice, 1, offset as i64, libc::RWF_NOWAIT)
                }
                Op::ReadVectored { fd, slices, count, offset } => {
                    libc::preadv2(fd, slices, count as i32, offset as i64, libc::RWF_NOWAIT)
                }
                Op::WriteVectored { fd, slices, count, offset } => {
                    libc::pwritev2(fd, slices, count as i32, offset as i64, libc::RWF_NOWAIT)
                }
                _ => unreachable!("a read or a write"),
            }
        })
    }

    /// The plain call, for no more bytes than a pipe takes at once.
    unsafe fn call_pipe_sized(&self) -> i32 {
        // SAFETY: by the caller's contract, the slices name memory that is lent for the op.
        retry(|| unsafe {
            match self.op {
                Op::Read { target, buf, len, .. } => {
                    libc::read(target.number(), buf.cast(), len as usize)
                }
                Op::ReadVectored { fd, slices, count, .. } => libc::readv(fd, slices, count as i32),
                Op::Write { target, buf, len, .. } => {
                    libc::write(target.number(), buf.cast(), (len as usize).min(PIPE_BUF))
                }
                Op::WriteVectored { fd, slices, count, .. } => {
                    let all = std::slice::from_raw_parts(slices, count as usize);
                    if all.iter().map(|slice| slice.iov_len).sum::<usize>() <= PIPE_BUF {
                        return libc::writev(fd, slices, count as i32);
                    }
                    let first =
                        all.iter().find(|slice| slice.iov_len > 0).expect("more than nothing");
                    libc::write(fd, first.iov_base, first.iov_len.min(PIPE_BUF))
                }
                _ => unreachable!("a read or a write"),
            }
        })
    }

    /// A send or receive; of a stream with `MSG_WAITALL`, until everything is moved. As on the ring, a receive with
    /// room for control data returns after the first part, so that data beside a later part is not mixed with it.
    unsafe fn transfer(
        &mut self,
        fd: RawFd,
        flags: i32,
        direction: Direction,
        told: bool,
    ) -> Outcome {
        let moves_all = flags & (libc::MSG_WAITALL | libc::MSG_PEEK) == libc::MSG_WAITALL
            && !self.has_control_room();
        loop {
            // SAFETY: by the caller's contract.
            let result = unsafe { self.call_socket() };
            if result == WOULD_WAIT && flags & libc::MSG_DONTWAIT == 0 {
                // It is ready because nothing more will come.
                let ended = told && direction == Direction::In && sys::is_shut_for_reading(fd);
                return if ended { Outcome::Done(0) } else { Outcome::Wait(fd, direction) };
            }
            let goes_on = moves_all && result > 0;
            // SAFETY: by the caller's contract; the call has moved so many bytes.
            if !goes_on || !unsafe { self.advance(result as u32) } {
                let more = if goes_on { 0 } else { result };
                return Outcome::Done(self.total(more));
            }
            if !sys::is_stream_socket(fd) {
                return Outcome::Done(self.total(0));
            }
        }
    }

    /// Whether it receives what comes beside the bytes.
    fn has_control_room(&self) -> bool {
        let Op::RecvMsg { message, .. } = self.op else { return false };
        // SAFETY: I1. The message is lent for the op.
        unsafe { (*message).msg_controllen > 0 }
    }

    unsafe fn call_socket(&mut self) -> i32 {
        const NOW: i32 = libc::MSG_DONTWAIT;
        // SAFETY: by the caller's contract.
        let result = retry(|| unsafe {
            match self.op {
                Op::Recv { fd, buf, len, flags } => {
                    libc::recv(fd, buf.cast(), len as usize, flags | NOW)
                }
                Op::Send { fd, buf, len, flags } | Op::SendZc { fd, buf, len, flags } => {
                    libc::send(fd, buf.cast(), len as usize, flags | NOW)
                }
                Op::RecvMsg { fd, message, flags } => libc::recvmsg(fd, message, flags | NOW),
                Op::SendMsg { fd, message, flags } => libc::sendmsg(fd, message, flags | NOW),
                _ => unreachable!("an op on a socket"),
            }
        });
        if let (0.., Some(rest)) = (result, &self.rest) {
            // SAFETY: by the caller's contract.
            unsafe { rest.report_flags() };
        }
        result
    }

    unsafe fn accept(&mut self, fd: RawFd) -> Outcome {
        self.hold(fd);
        let Op::Accept { addr, addr_len, .. } = self.op else { unreachable!("an accept") };
        // SAFETY: by the caller's contract.
        match retry(|| unsafe {
            libc::accept4(fd, addr.cast(), addr_len, libc::SOCK_CLOEXEC) as isize
        }) {
            WOULD_WAIT if self.hold.is_some() => Outcome::Wait(fd, Direction::In),
            // The program's own wish, or it is no socket.
            result => Outcome::Done(result),
        }
    }

    unsafe fn connect(&mut self, fd: RawFd) -> Outcome {
        if self.connecting {
            return connected(fd).map_or(Outcome::Wait(fd, Direction::Out), Outcome::Done);
        }
        self.hold(fd);
        let Op::Connect { addr, addr_len, .. } = self.op else { unreachable!("a connect") };
        // SAFETY: by the caller's contract.
        match retry(|| unsafe { libc::connect(fd, addr.cast(), addr_len) as isize }) {
            IN_PROGRESS => {
                self.connecting = true;
                Outcome::Wait(fd, Direction::Out)
            }
            result => Outcome::Done(result),
        }
    }

    fn hold(&mut self, fd: RawFd) {
        if self.hold.is_none() {
            self.hold = Hold::take(fd);
        }
    }

    /// What has come of it, where the last call came to this.
    pub(super) fn total(&self, result: i32) -> i32 {
        match self.done {
            0 => result,
            // What was moved counts; the error comes again with the next one.
            done => done as i32 + result.max(0),
        }
    }
}

/// How connecting went; `None` where it goes on.
fn connected(fd: RawFd) -> Option<i32> {
    if !is_ready(fd, Direction::Out) {
        return None;
    }
    let (mut error, mut len) = (0i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the kernel writes at most so many bytes of the number.
    let asked = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut error).cast(), &mut len)
    };
    Some(if asked < 0 { -sys::errno() } else { -error })
}

/// Whether the kernel reports a descriptor as ready, to read from or to write to. After a call that would have
/// waited, it then reports it again at once.
pub(super) fn is_ready(fd: RawFd, direction: Direction) -> bool {
    poll_now(fd, if direction == Direction::In { libc::POLLIN } else { libc::POLLOUT }) != 0
}

/// `poll(2)` that does not wait: what is ready.
fn poll_now(fd: RawFd, events: i16) -> i32 {
    let mut poll = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one structure is given, and it lives through the call.
    match retry(|| unsafe { libc::poll(&mut poll, 1, 0) as isize }) {
        error if error < 0 => error,
        _ => poll.revents.into(),
    }
}

/// Opens a file whose path is in the kernel's cache. The kernel refuses to create or truncate a file this direction.
///
/// # Safety
///
/// The path is a C string.
unsafe fn open_cached(dir: RawFd, path: *const c_char, flags: i32) -> Outcome {
    // SAFETY: all of it may be zero.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    (how.flags, how.resolve) = (flags as u64, libc::RESOLVE_CACHED);
    let size = size_of::<libc::open_how>();
    // SAFETY: by the contract; the structure lives through the call.
    match retry(|| unsafe {
        libc::syscall(libc::SYS_openat2, dir, path, &raw const how, size) as isize
    }) {
        fd if fd >= 0 => Outcome::Done(fd),
        // It waits, or is not to be had this direction: the plain call has the last word.
        _ => Outcome::Offload,
    }
}

fn waits_for_storage(fd: RawFd) -> bool {
    matches!(sys::mode(fd) & libc::S_IFMT, libc::S_IFREG | libc::S_IFBLK | libc::S_IFDIR)
}

/// The call, again after a signal; its count, or a negated errno.
fn retry(mut call: impl FnMut() -> isize) -> i32 {
    loop {
        let result = call();
        if result >= 0 {
            return result as i32;
        }
        let errno = sys::errno();
        if errno != libc::EINTR {
            return -errno;
        }
    }
}

/// The op with the descriptor of a registered file in place of its number.
pub(super) fn with_descriptor(op: &Op, find: impl Fn(i32) -> Option<RawFd>) -> Op {
    let mut op = *op;
    if let Op::Read { target, .. }
    | Op::ReadFixed { target, .. }
    | Op::Write { target, .. }
    | Op::WriteFixed { target, .. } = &mut op
        && target.is_fixed()
    {
        *target = Target::fd(find(target.number()).unwrap_or(-1));
    }
    op
}
