//! One op at its time: performed for real, in part, or answered by an error.
//!
//! The faults of each kind of op are drawn here. (The library has no multishot ops, so none ends
//! without `F_MORE`. The only entry that a ring links to an op is the release of its file;
//! `enter.rs` simulates it by an early result.)

use super::checker::Checker;
use super::core::Core;
use super::options::Fault;
use cringle_driver::op::{AT_CURSOR, StatCall};
use cringle_driver::registered::Registered;
use cringle_driver::syscall::Syscall;
use cringle_driver::{FileOp, Memory, Op, PathOp, SocketMemory, Way, blocking};
use cringle_sys as sys;
use std::ffi::CStr;
use std::ops::Range;
use std::os::fd::{BorrowedFd, RawFd};

/// The outcome of an attempt.
pub(super) enum Outcome {
    Done(i32),
    WouldBlock,
}

/// A transfer: the part of the op that its faults depend on.
struct Move {
    fd: RawFd,
    len: usize,
    is_write: bool,
    is_regular: bool,
    is_socket: bool,
}

impl Core {
    /// Whether the op would have to wait for a peer now.
    pub(super) fn would_block(&mut self, op: &Op, fixed: &Registered) -> bool {
        if !self.has_power() {
            return false;
        }
        let (fd, events) = match *op {
            Op::Poll { fd, events } => (fd, events as i16),
            Op::Accept { fd, .. } if sys::simulated::is_unix_socket(fd) => (fd, libc::POLLIN),
            _ => match transfer_of(op, fixed) {
                Some(transfer) if !transfer.is_regular => {
                    (transfer.fd, if transfer.is_write { libc::POLLOUT } else { libc::POLLIN })
                }
                _ => return false,
            },
        };
        // SAFETY: I1. The frame that waits for the op has borrowed its descriptor.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        matches!(sys::poll_now(fd, events), Ok(0))
    }

    /// Performs an op that would not block, or answers it with a fault.
    pub(super) fn perform(&mut self, op: &Op, fixed: &Registered) -> Outcome {
        if !self.has_power() && !matches!(op, Op::File(FileOp::Close { .. })) {
            return Outcome::Done(-libc::EIO);
        }
        if !matches!(op, Op::Nop | Op::Raw(_)) && self.draw(Fault::SpuriousCancel) {
            return Outcome::Done(-libc::ECANCELED);
        }
        match transfer_of(op, fixed) {
            Some(transfer) => self.transfer(op, &transfer),
            None if matches!(op, Op::Accept { .. }) => self.accept(op),
            None => Outcome::Done(self.perform_other(op)),
        }
    }

    fn transfer(&mut self, op: &Op, transfer: &Move) -> Outcome {
        let Move { fd, len, is_write, is_regular, is_socket } = *transfer;
        if is_regular && self.files.is_open_directory(fd) {
            return Outcome::Done(-libc::EISDIR);
        }
        if self.draw(Fault::Interrupted) {
            return Outcome::Done(-libc::EINTR);
        }
        if is_socket && self.draw(Fault::ConnectionReset) {
            // SAFETY: no pointers are passed; the frame of the op has borrowed the descriptor.
            unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
            return Outcome::Done(-libc::ECONNRESET);
        }
        if is_regular && self.draw(Fault::WouldBlock) {
            return Outcome::Done(-libc::EAGAIN);
        }
        if is_regular && self.draw(Fault::ZeroTransfer) {
            return Outcome::Done(0);
        }
        if is_regular && is_write && self.draw(Fault::NoSpace) {
            return Outcome::Done(-libc::ENOSPC);
        }
        let fails = is_regular && self.draw(Fault::InputOutput);
        let shortened = len > 1 && (fails && is_write || self.draw(Fault::ShortTransfer));
        let most = if shortened { self.rng.between(1, len as u64 - 1) as usize } else { len };
        if fails && !is_write {
            return Outcome::Done(-libc::EIO);
        }
        // SAFETY: I1. The op has not ended, so its pointers are valid.
        let result = unsafe { move_bytes(op, fd, most, is_regular) };
        if result == -libc::EAGAIN && !is_regular {
            return Outcome::WouldBlock;
        }
        if is_regular && is_write && result > 0 {
            self.written(op, fd, result as usize);
            if is_synced(op, fd) {
                let fails = self.draw(Fault::InputOutput);
                let bytes = written_range(op, fd, result as u64);
                if self.files.write_through(fd, &mut self.rng, &bytes, fails) < 0 {
                    return Outcome::Done(-libc::EIO);
                }
            }
        }
        Outcome::Done(if fails { -libc::EIO } else { result })
    }

    /// Accepts a connection of a Unix socket, which exists as soon as the client's fiber has
    /// connected.
    fn accept(&mut self, op: &Op) -> Outcome {
        match *op {
            Op::Accept { fd, .. } if sys::simulated::is_unix_socket(fd) => {
                if self.draw(Fault::Interrupted) {
                    return Outcome::Done(-libc::EINTR);
                }
                // SAFETY: I1. The op has not ended, so its pointers are valid.
                match without_waiting(fd, || unsafe { blocking::perform_unseen(op) }) {
                    error if error == -libc::EAGAIN => Outcome::WouldBlock,
                    result => Outcome::Done(result),
                }
            }
            // Connections over a network arrive at times that differ from run to run.
            _ => Outcome::Done(-libc::ENOSYS),
        }
    }

    /// Records a write, and draws whether some of its bytes reach the disk early, or fail to.
    fn written(&mut self, op: &Op, fd: RawFd, count: usize) {
        let bytes = written_range(op, fd, count as u64);
        self.files.written(fd, self.now_ns, &bytes);
        if self.draw(Fault::Writeback) {
            let fails = self.draw(Fault::InputOutput);
            self.files.write_early(fd, &mut self.rng, &bytes, fails);
        }
    }

    /// Records a write that was a plain call. Writes that answer `EAGAIN` are repeated so.
    pub(crate) fn note_plain_write(&mut self, op: &Op, count: i32) {
        let written = op.transfer().filter(|transfer| transfer.way == Way::Write);
        if let Some(fd) = written.and_then(|transfer| transfer.file.as_fd()) {
            self.files.written(fd, self.now_ns, &written_range(op, fd, count as u64));
        }
    }

    fn perform_other(&mut self, op: &Op) -> i32 {
        // SAFETY: I1. The op has not ended, so its pointers are valid.
        let call = || unsafe { blocking::perform_unseen(op) };
        match *op {
            Op::File(op) => self.perform_on_file(op, call),
            Op::Path(op) => self.perform_on_path(op),
            Op::Nop | Op::Poll { .. } | Op::Raw(_) => call(),
            _ if self.draw(Fault::InputOutput) => -libc::EIO,
            _ if !op.fits_simulation() => -libc::ENOSYS,
            Op::Syscall(syscall) => {
                let result = call();
                if let (0.., Syscall::CopyRange { to, .. } | Syscall::Clone { to, .. }) =
                    (result, syscall)
                {
                    self.files.changed(to, self.now_ns);
                }
                result
            }
            Op::Connect { .. } | Op::FutexWait { .. } => unreachable!("it is not simulated"),
            Op::Transfer(_) | Op::Socket(_) | Op::Accept { .. } => {
                unreachable!("it may wait for a peer")
            }
        }
    }

    fn perform_on_file(&mut self, op: FileOp, call: impl Fn() -> i32) -> i32 {
        match op {
            FileOp::Close { .. } => {
                // The descriptor is closed in spite of these errors.
                let result = call();
                self.fault(&[Fault::Interrupted, Fault::InputOutput]).unwrap_or(result)
            }
            FileOp::Sync { fd, .. } => {
                if self.draw(Fault::Interrupted) {
                    return -libc::EINTR;
                }
                let fails = self.draw(Fault::InputOutput);
                self.sync(fd, fails)
            }
            FileOp::SyncRange { fd, flags, .. } => match call() {
                0 => self.sync_range(fd, flags),
                error => error,
            },
            FileOp::SetLen { fd, len } => {
                let faults = [Fault::Interrupted, Fault::InputOutput, Fault::NoSpace];
                let result = self.fault(&faults).unwrap_or_else(call);
                if result == 0 {
                    self.files.resized(fd, self.now_ns, len);
                }
                result
            }
            FileOp::Allocate { fd, .. } => {
                let result = self.fault(&[Fault::InputOutput]).unwrap_or_else(call);
                if result >= 0 {
                    self.files.changed(fd, self.now_ns);
                }
                result
            }
            _ if self.draw(Fault::InputOutput) => -libc::EIO,
            _ if !Op::File(op).fits_simulation() => -libc::ENOSYS,
            FileOp::Advise { .. } | FileOp::GetXattr(_) | FileOp::SetXattr(_) => call(),
        }
    }

    /// Performs an op on a path of the world. No call reaches the machine's files.
    fn perform_on_path(&mut self, op: PathOp) -> i32 {
        let faults: &[Fault] = match op {
            PathOp::Open { flags, .. } if flags & libc::O_CREAT != 0 => {
                &[Fault::WouldBlock, Fault::NoSpace, Fault::Interrupted, Fault::InputOutput]
            }
            PathOp::Open { .. } => &[Fault::WouldBlock, Fault::Interrupted, Fault::InputOutput],
            PathOp::Stat { .. } => &[Fault::Interrupted, Fault::InputOutput],
            _ => &[Fault::InputOutput],
        };
        if let Some(error) = self.fault(faults) {
            return error;
        }
        if !Op::Path(op).fits_simulation() {
            return -libc::ENOSYS;
        }
        // SAFETY: I1. The op has not ended, so its paths are valid C strings.
        let of = |path| unsafe { CStr::from_ptr(path) };
        match op {
            PathOp::Open { path, flags, mode, .. } => self.open(of(path), flags, mode),
            PathOp::Stat { dir, path, call } => {
                // SAFETY: I1. The op has not ended, so its call is valid.
                let StatCall { flags, mask, out } = unsafe { *call };
                // SAFETY: I1. As above: the structure is valid for writes.
                self.files.stat(dir, of(path), flags, mask, unsafe { &mut *out.cast() })
            }
            PathOp::Unlink { path, .. } => self.files.unlink(of(path)),
            PathOp::Rename { path, to, .. } => {
                // SAFETY: I1. As above.
                let to = unsafe { *to };
                self.files.rename(of(path), of(to.path), to.flags as u32)
            }
            PathOp::MakeDir { path, .. } => match self.files.make_directory(of(path)) {
                Ok(()) => 0,
                Err(e) => -e.raw_os_error().unwrap_or(libc::EIO),
            },
            PathOp::OpenHow { .. } | PathOp::Symlink { .. } | PathOp::Link { .. } => {
                unreachable!("it is not simulated")
            }
        }
    }

    /// Draws these faults in turn. Returns the error of the first one that occurs.
    fn fault(&mut self, faults: &[Fault]) -> Option<i32> {
        let fault = faults.iter().find(|&&fault| self.draw(fault))?;
        Some(match fault {
            Fault::Interrupted => -libc::EINTR,
            Fault::WouldBlock => -libc::EAGAIN,
            Fault::NoSpace => -libc::ENOSPC,
            _ => -libc::EIO,
        })
    }

    /// Opens a file of the world. Returns its descriptor, or a negated errno.
    pub(crate) fn open(&mut self, path: &CStr, flags: i32, mode: u32) -> i32 {
        match self.files.open(path, flags, mode, self.now_ns) {
            Ok(fd) => {
                #[cfg(any(test, feature = "sabotage"))]
                if self.is_sabotaged(super::Sabotage::LeakedDescriptor) {
                    std::mem::forget(self.files.open(path, libc::O_RDONLY, 0, 0));
                }
                fd
            }
            Err(e) => match e.raw_os_error() {
                Some(errno) => -errno,
                None => {
                    self.fail(Checker::Setup, format!("cannot open a memory file: {e}"));
                    -libc::EIO
                }
            },
        }
    }

    /// Makes the contents of a file, or the names in a directory, survive a loss of power; or it
    /// `fails`.
    pub(crate) fn sync(&mut self, fd: RawFd, fails: bool) -> i32 {
        #[cfg(any(test, feature = "sabotage"))]
        if self.is_sabotaged(super::Sabotage::SyncIgnored) {
            return 0;
        }
        if !self.has_power() {
            return -libc::EIO;
        }
        self.files.sync(fd, &mut self.rng, fails)
    }

    fn sync_range(&mut self, fd: RawFd, flags: u32) -> i32 {
        let waits = flags & (libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER);
        let fails = self.draw(Fault::InputOutput);
        self.files.sync_range(fd, &mut self.rng, waits != 0, fails)
    }
}

/// The op as a transfer, if it is one.
fn transfer_of(op: &Op, fixed: &Registered) -> Option<Move> {
    let (fd, len, way) = match *op {
        Op::Transfer(transfer) => {
            let fd = match transfer.file.as_fd() {
                Some(fd) => fd,
                None => fixed.file(transfer.file.number()).unwrap_or(-1),
            };
            let len = match transfer.memory() {
                Memory::Bytes { len, .. } => len as usize,
                Memory::Slices { slices, count } => total(slices, count),
            };
            (fd, len, transfer.way)
        }
        Op::Socket(transfer) => {
            let len = match transfer.memory() {
                SocketMemory::Bytes { len, .. } if sys::is_stream_socket(transfer.fd) => len,
                // A datagram is not shortened.
                _ => 0,
            };
            (transfer.fd, len as usize, transfer.way)
        }
        _ => return None,
    };
    Some(Move::new(fd, len, way == Way::Write))
}

impl Move {
    fn new(fd: RawFd, len: usize, is_write: bool) -> Move {
        let kind = sys::mode(fd) & libc::S_IFMT;
        let (is_regular, is_socket) = (kind == libc::S_IFREG, kind == libc::S_IFSOCK);
        Move { fd, len, is_write, is_regular, is_socket }
    }
}

fn slices_of<'a>(slices: *const libc::iovec, count: u32) -> &'a [libc::iovec] {
    // SAFETY: I1. The op has not ended, so its slices are valid.
    unsafe { std::slice::from_raw_parts(slices, count as usize) }
}

fn total(slices: *const libc::iovec, count: u32) -> usize {
    slices_of(slices, count).iter().map(|slice| slice.iov_len).sum()
}

/// Whether a write returns only when its bytes are on the disk.
fn is_synced(op: &Op, fd: RawFd) -> bool {
    let durable = libc::RWF_DSYNC | libc::RWF_SYNC;
    op.transfer().is_some_and(|transfer| transfer.flags() & durable != 0)
        || sys::status_flags(fd) & libc::O_DSYNC != 0
}

/// Returns the place of the bytes that an op has just written to a regular file.
fn written_range(op: &Op, fd: RawFd, count: u64) -> Range<u64> {
    let before = |end: u64| end.saturating_sub(count)..end;
    let (flags, offset) = op.transfer().map_or((0, AT_CURSOR), |it| (it.flags(), it.offset));
    let appends = sys::status_flags(fd) & libc::O_APPEND != 0 && flags & libc::RWF_NOAPPEND == 0;
    if appends || flags & libc::RWF_APPEND != 0 {
        return before(sys::fstat(fd).map_or(0, |stat| stat.st_size as u64));
    }
    match offset {
        AT_CURSOR => before(sys::simulated::cursor(fd)),
        offset => offset..offset + count,
    }
}

/// Transfers at most this many bytes. A transfer that would wait for a peer returns `EAGAIN`.
///
/// # Safety
///
/// The op's pointers are valid.
unsafe fn move_bytes(op: &Op, fd: RawFd, most: usize, is_regular: bool) -> i32 {
    let mut cut = Vec::new();
    let op = match *op {
        Op::Transfer(transfer) => {
            let memory = match transfer.memory() {
                Memory::Bytes { start, .. } => Memory::Bytes { start, len: most as u32 },
                Memory::Slices { slices, count } => {
                    cut.extend(cut_to(slices_of(slices, count), most));
                    Memory::Slices { slices: cut.as_ptr(), count: cut.len() as u32 }
                }
            };
            Op::Transfer(transfer.with_memory(memory)).on_descriptor(fd)
        }
        Op::Socket(transfer) if most > 0 => match transfer.memory() {
            SocketMemory::Bytes { start, .. } => {
                let memory = SocketMemory::Bytes { start, len: most as u32 };
                Op::Socket(transfer.with_memory(memory))
            }
            SocketMemory::Message(_) => *op,
        },
        other => other,
    };
    // SAFETY: by the contract: the op's pointers are valid, and no length exceeds the op's.
    let perform = || unsafe { blocking::perform_unseen(&op) };
    if is_regular {
        return perform();
    }
    without_waiting(fd, perform)
}

/// Makes a call on a descriptor that is non-blocking meanwhile.
fn without_waiting(fd: RawFd, call: impl FnOnce() -> i32) -> i32 {
    let flags = sys::status_flags(fd);
    let set = |flags| sys::set_status_flags(fd, flags).is_ok();
    let changed = flags & libc::O_NONBLOCK == 0 && set(flags | libc::O_NONBLOCK);
    let result = call();
    if changed {
        set(flags);
    }
    result
}

/// The first bytes of these slices.
fn cut_to(slices: &[libc::iovec], most: usize) -> impl Iterator<Item = libc::iovec> {
    let mut left = most;
    slices.iter().map(move |slice| {
        let iov_len = slice.iov_len.min(left);
        left -= iov_len;
        libc::iovec { iov_base: slice.iov_base, iov_len }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cringle_driver::syscall::Times;
    use std::ptr::null;

    /// A call on a path would reach the machine's files; one on a descriptor reaches the world's.
    #[test]
    fn times_of_a_path_are_not_performed() {
        let times = null::<Times>();
        for (path, is_simulated) in [(c"/file".as_ptr(), false), (null(), true)] {
            let call = Syscall::SetTimes { fd: libc::AT_FDCWD, path, times };
            assert_eq!(Op::Syscall(call).fits_simulation(), is_simulated);
        }
    }
}
