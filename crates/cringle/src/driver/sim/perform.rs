//! One op at its moment: performed for real, in part, or answered by an error.
//!
//! What an op may meet is decided here, in one place for each kind of op. (Multishot ops and linked ones
//! do not exist in the library yet; their faults, an end without `F_MORE` and a broken link, belong here
//! too.)

use super::checker::Checker;
use super::core::Core;
use super::options::Fault;
use crate::driver::op::AT_CURSOR;
use crate::driver::registered::Registered;
use crate::driver::syscall::{Syscall, XattrCall};
use crate::driver::{Op, Target, blocking};
use crate::sys;
use std::os::fd::{BorrowedFd, RawFd};

/// What came of a try.
pub(super) enum Outcome {
    Ended(i32),
    WouldBlock,
}

/// What of an op matters for how it is performed.
struct Transfer {
    fd: RawFd,
    len: usize,
    is_write: bool,
    is_regular: bool,
    is_socket: bool,
}

impl Core {
    /// Whether the op waits for a peer now.
    pub(super) fn would_block(&mut self, op: &Op, fixed: &Registered) -> bool {
        if !self.has_power() {
            return false;
        }
        let (fd, events) = match *op {
            Op::Poll { fd, events } => (fd, events as i16),
            Op::Accept { fd, .. } if sys::is_unix_socket(fd) => (fd, libc::POLLIN),
            _ => match transfer_of(op, fixed) {
                Some(transfer) if !transfer.is_regular => {
                    (transfer.fd, if transfer.is_write { libc::POLLOUT } else { libc::POLLIN })
                }
                _ => return false,
            },
        };
        // SAFETY: the op's descriptor is borrowed by the frame that waits for it.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        matches!(sys::poll_now(fd, events), Ok(0))
    }

    /// Performs the op, which would not block, unless something goes wrong.
    pub(super) fn perform(&mut self, op: &Op, fixed: &Registered) -> Outcome {
        if !self.has_power() && !matches!(op, Op::Close { .. }) {
            return Outcome::Ended(-libc::EIO);
        }
        if !matches!(op, Op::Nop | Op::Raw(_)) && self.draw(Fault::SpuriousCancel) {
            return Outcome::Ended(-libc::ECANCELED);
        }
        match transfer_of(op, fixed) {
            Some(transfer) => self.transfer(op, &transfer),
            None if matches!(op, Op::Accept { .. }) => self.accept(op),
            None => Outcome::Ended(self.perform_other(op)),
        }
    }

    fn transfer(&mut self, op: &Op, transfer: &Transfer) -> Outcome {
        let Transfer { fd, len, is_write, is_regular, is_socket } = *transfer;
        if self.draw(Fault::Interrupted) {
            return Outcome::Ended(-libc::EINTR);
        }
        if is_socket && self.draw(Fault::ConnectionReset) {
            // SAFETY: no pointers; the descriptor is borrowed by the op's frame.
            unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
            return Outcome::Ended(-libc::ECONNRESET);
        }
        if is_regular && self.draw(Fault::WouldBlock) {
            return Outcome::Ended(-libc::EAGAIN);
        }
        if is_regular && self.draw(Fault::ZeroTransfer) {
            return Outcome::Ended(0);
        }
        if is_regular && is_write && self.draw(Fault::NoSpace) {
            return Outcome::Ended(-libc::ENOSPC);
        }
        let fails = is_regular && self.draw(Fault::InputOutput);
        let shortened = len > 1 && (fails && is_write || self.draw(Fault::ShortTransfer));
        let most = if shortened { self.rng.between(1, len as u64 - 1) as usize } else { len };
        if fails && !is_write {
            return Outcome::Ended(-libc::EIO);
        }
        // SAFETY: I1. The op's memory is its frame's until it has ended.
        let result = unsafe { move_bytes(op, fd, most, is_regular) };
        if result == -libc::EAGAIN && !is_regular {
            return Outcome::WouldBlock;
        }
        if is_regular && is_write && result > 0 {
            self.written(op, fd, result as usize);
        }
        Outcome::Ended(if fails { -libc::EIO } else { result })
    }

    /// Takes a connection of this machine's, which has come at the moment that its client's fiber made it.
    fn accept(&mut self, op: &Op) -> Outcome {
        match *op {
            Op::Accept { fd, .. } if sys::is_unix_socket(fd) => {
                if self.draw(Fault::Interrupted) {
                    return Outcome::Ended(-libc::EINTR);
                }
                // SAFETY: I1. The op's memory is its frame's until it has ended.
                match without_waiting(fd, || unsafe { blocking::perform(op) }) {
                    error if error == -libc::EAGAIN => Outcome::WouldBlock,
                    result => Outcome::Ended(result),
                }
            }
            // Who comes over a network when is the machine's to say: no run would be like the other.
            _ => Outcome::Ended(-libc::ENOSYS),
        }
    }

    /// Some bytes are new: when, and whether the disk has some of them early.
    fn written(&mut self, op: &Op, fd: RawFd, count: usize) {
        let now_ns = self.now_ns;
        let drawn = self.draw_writeback().map(|rng| rng.next());
        let at = offset_of(op).filter(|&offset| offset != AT_CURSOR);
        self.files.written(fd, now_ns, drawn.zip(at).map(|(seed, at)| (seed, at, count)));
    }

    fn perform_other(&mut self, op: &Op) -> i32 {
        // SAFETY: I1. The op's memory is its frame's until it has ended.
        let plainly = || unsafe { blocking::perform(op) };
        match *op {
            Op::Close { .. } => {
                // Its errors come after the descriptor has gone.
                let result = plainly();
                match self.draw(Fault::Interrupted) {
                    true => -libc::EINTR,
                    false if self.draw(Fault::InputOutput) => -libc::EIO,
                    false => result,
                }
            }
            Op::Open { .. } if self.draw(Fault::WouldBlock) => -libc::EAGAIN,
            Op::Open { flags, .. } if flags & libc::O_CREAT != 0 && self.draw(Fault::NoSpace) => {
                -libc::ENOSPC
            }
            Op::Sync { .. } | Op::Open { .. } | Op::Stat { .. } | Op::SetLen { .. }
                if self.draw(Fault::Interrupted) =>
            {
                -libc::EINTR
            }
            Op::Sync { .. } | Op::Open { .. } | Op::Stat { .. } | Op::SetLen { .. }
                if self.draw(Fault::InputOutput) =>
            {
                -libc::EIO
            }
            Op::SetLen { .. } if self.draw(Fault::NoSpace) => -libc::ENOSPC,
            Op::Open { path, flags, mode, .. } => {
                // SAFETY: I1. The path is a C string of the op's frame.
                let path = unsafe { std::ffi::CStr::from_ptr(path) };
                self.open(path, flags, mode)
            }
            Op::Sync { fd, .. } => self.sync(fd),
            Op::Stat { dir, path, flags, mask, out } => {
                // SAFETY: I1. As above; and the kernel's structure is the frame's.
                let (path, out) = unsafe { (std::ffi::CStr::from_ptr(path), &mut *out.cast()) };
                self.files.stat(dir, path, flags, mask, out)
            }
            Op::SetLen { fd, .. } => {
                let result = plainly();
                self.files.written(fd, self.now_ns, None);
                result
            }
            _ => self.perform_on_names(op),
        }
    }

    /// What changes names, and the calls that no ring has an op for.
    fn perform_on_names(&mut self, op: &Op) -> i32 {
        if !matches!(op, Op::Nop | Op::Poll { .. } | Op::Raw(_)) && self.draw(Fault::InputOutput) {
            return -libc::EIO;
        }
        // SAFETY: I1. Paths are C strings of the op's frame.
        let of = |path| unsafe { std::ffi::CStr::from_ptr(path) };
        match *op {
            Op::Unlink { path, .. } => self.files.unlink(of(path)),
            Op::Rename { from, to, flags: 0, .. } => self.files.rename(of(from), of(to)),
            // Directories are there by themselves.
            Op::MakeDir { .. } => 0,
            _ if names_a_path(op) => -libc::ENOSYS,
            // As for what is accepted.
            Op::Connect { .. } => -libc::ENOSYS,
            _ => {
                // SAFETY: I1. The op's memory is its frame's until it has ended.
                let result = unsafe { blocking::perform(op) };
                if let Some(fd) = written_by(op).filter(|_| result >= 0) {
                    self.files.written(fd, self.now_ns, None);
                }
                result
            }
        }
    }

    /// Opens a file of the world; its descriptor or a negated errno.
    pub(crate) fn open(&mut self, path: &std::ffi::CStr, flags: i32, mode: u32) -> i32 {
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
                    self.fail(Checker::Setup, format!("a memory file cannot be opened: {e}"));
                    -libc::EIO
                }
            },
        }
    }

    /// What the file holds now survives a loss of power.
    pub(crate) fn sync(&mut self, fd: RawFd) -> i32 {
        #[cfg(any(test, feature = "sabotage"))]
        if self.is_sabotaged(super::Sabotage::SyncIgnored) {
            return 0;
        }
        if self.has_power() {
            self.files.sync(fd);
        }
        0
    }
}

/// Whether it is about a path, which is none of the machine's here, and is not imitated yet.
fn names_a_path(op: &Op) -> bool {
    // SAFETY: I1. What the op points to is its frame's.
    let has_path = |call: *const XattrCall| unsafe { !(*call).path.is_null() };
    match *op {
        Op::OpenHow { .. } | Op::Rename { .. } | Op::Symlink { .. } | Op::Link { .. } => true,
        Op::GetXattr(call) | Op::SetXattr(call) => has_path(call),
        Op::Syscall(Syscall::ListXattrs(call) | Syscall::RemoveXattr(call)) => has_path(call),
        Op::Syscall(Syscall::SetMode { path, .. }) => !path.is_null(),
        // SAFETY: I1. It is a C string of the op's frame.
        Op::Syscall(Syscall::SetOwner { path, .. }) => unsafe { *path != 0 },
        Op::Syscall(
            Syscall::ReadLink { .. } | Syscall::RealPath { .. } | Syscall::ChangeRoot { .. },
        ) => true,
        _ => false,
    }
}

/// The file whose bytes it may have changed.
fn written_by(op: &Op) -> Option<RawFd> {
    match *op {
        Op::Allocate { fd, .. } => Some(fd),
        Op::Syscall(Syscall::CopyRange { to, .. } | Syscall::Clone { to, .. }) => Some(to),
        _ => None,
    }
}

/// The op as a transfer, if it is one.
fn transfer_of(op: &Op, fixed: &Registered) -> Option<Transfer> {
    let number = |target: Target| match target.as_fd() {
        Some(fd) => fd,
        None => fixed.file(target.number()).unwrap_or(-1),
    };
    let (fd, len, is_write) = match *op {
        Op::Read { target, len, .. } | Op::ReadFixed { target, len, .. } => {
            (number(target), len as usize, false)
        }
        Op::Write { target, len, .. } | Op::WriteFixed { target, len, .. } => {
            (number(target), len as usize, true)
        }
        Op::ReadVectored { fd, slices, count, .. } => (fd, total(slices, count), false),
        Op::WriteVectored { fd, slices, count, .. } => (fd, total(slices, count), true),
        // A message is not cut.
        Op::Recv { fd, .. } if !sys::is_stream_socket(fd) => (fd, 0, false),
        Op::Send { fd, .. } | Op::SendZc { fd, .. } if !sys::is_stream_socket(fd) => (fd, 0, true),
        Op::Recv { fd, len, .. } => (fd, len as usize, false),
        Op::Send { fd, len, .. } | Op::SendZc { fd, len, .. } => (fd, len as usize, true),
        Op::RecvMsg { fd, .. } => (fd, 0, false),
        Op::SendMsg { fd, .. } => (fd, 0, true),
        _ => return None,
    };
    let kind = sys::mode(fd) & libc::S_IFMT;
    let is_regular = kind == libc::S_IFREG;
    Some(Transfer { fd, len, is_write, is_regular, is_socket: kind == libc::S_IFSOCK })
}

fn slices_of<'a>(slices: *const libc::iovec, count: u32) -> &'a [libc::iovec] {
    // SAFETY: I1. The op's slices are its frame's until it has ended.
    unsafe { std::slice::from_raw_parts(slices, count as usize) }
}

fn total(slices: *const libc::iovec, count: u32) -> usize {
    slices_of(slices, count).iter().map(|slice| slice.iov_len).sum()
}

fn offset_of(op: &Op) -> Option<u64> {
    match *op {
        Op::Read { offset, .. }
        | Op::Write { offset, .. }
        | Op::ReadFixed { offset, .. }
        | Op::WriteFixed { offset, .. }
        | Op::ReadVectored { offset, .. }
        | Op::WriteVectored { offset, .. } => Some(offset),
        _ => None,
    }
}

/// The transfer of at most so many bytes; one that would wait for a peer answers `EAGAIN`.
///
/// # Safety
///
/// The op's pointers are valid.
unsafe fn move_bytes(op: &Op, fd: RawFd, most: usize, is_regular: bool) -> i32 {
    let target = Target::fd(fd);
    let mut cut = Vec::new();
    let op = match *op {
        Op::Read { buf, offset, .. } | Op::ReadFixed { buf, offset, .. } => {
            Op::Read { target, buf, len: most as u32, offset }
        }
        Op::Write { buf, offset, .. } | Op::WriteFixed { buf, offset, .. } => {
            Op::Write { target, buf, len: most as u32, offset }
        }
        Op::ReadVectored { slices, count, offset, .. } => {
            cut.extend(cut_to(slices_of(slices, count), most));
            Op::ReadVectored { fd, slices: cut.as_ptr(), count: cut.len() as u32, offset }
        }
        Op::WriteVectored { slices, count, offset, .. } => {
            cut.extend(cut_to(slices_of(slices, count), most));
            Op::WriteVectored { fd, slices: cut.as_ptr(), count: cut.len() as u32, offset }
        }
        Op::Recv { buf, flags, .. } if most > 0 => Op::Recv { fd, buf, len: most as u32, flags },
        Op::Send { buf, flags, .. } | Op::SendZc { buf, flags, .. } if most > 0 => {
            Op::Send { fd, buf, len: most as u32, flags }
        }
        other => other,
    };
    // SAFETY: by the contract; what was cut is shorter.
    let perform = || unsafe { blocking::perform(&op) };
    if is_regular {
        return perform();
    }
    without_waiting(fd, perform)
}

/// A call on this descriptor that answers `EAGAIN` where it would wait.
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

/// The first so many bytes of these slices.
fn cut_to(slices: &[libc::iovec], most: usize) -> impl Iterator<Item = libc::iovec> {
    let mut left = most;
    slices.iter().map(move |slice| {
        let iov_len = slice.iov_len.min(left);
        left -= iov_len;
        libc::iovec { iov_base: slice.iov_base, iov_len }
    })
}
