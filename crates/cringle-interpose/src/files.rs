//! Opening, closing, syncing and locking files.

use super::call::{Call, OnFiber, WOULD_WAIT};
use cringle_driver::{FileOp, Op, PathOp};
use cringle_std::internal::{InternalFile, borrow_number, wait_for_fifo_writer};
use cringle_sys::{self as sys, raw, syscall};
use libc::{mode_t, size_t, ssize_t};
use std::ffi::{c_char, c_int, c_long};
use std::os::fd::{BorrowedFd, RawFd};

/// # Safety
///
/// As libc's.
pub unsafe fn openat(
    on: OnFiber,
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    let makes = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
    // Without these flags, the caller has passed no mode.
    let mode = if makes { mode } else { 0 };
    on.call_int(|call| {
        call.admit()?;
        // SAFETY: by the contract.
        unsafe { open(call, dir, path, flags, mode) }
    })
}

/// Opens without waiting for the other end of a FIFO or for a lease, and then waits for it as
/// [`OpenOptions::open`](cringle_std::fs::OpenOptions::open) does.
///
/// # Safety
///
/// As `openat`'s.
unsafe fn open(
    call: Call,
    dir: RawFd,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> Result<isize, isize> {
    let waits = flags & (libc::O_NONBLOCK | libc::O_PATH) == 0;
    let open_flags = if waits { flags | libc::O_NONBLOCK } else { flags };
    let attempt = || {
        let result = if call.is_plain() {
            // SAFETY: by the contract.
            unsafe { syscall!(SYS_openat, dir, path, open_flags, mode) }
        } else {
            call.perform(Op::Path(PathOp::Open { dir, path, flags: open_flags, mode }))
        };
        const NO_READER: isize = -(libc::ENXIO as isize);
        // SAFETY: by the contract; the kernel has read the path.
        (result != NO_READER || !waits || unsafe { !is_fifo(dir, path) }).then_some(result)
    };
    Ok(match call.poll(attempt)? {
        fd @ 0.. if waits => opened(call, fd as RawFd, flags),
        WOULD_WAIT if waits => {
            let arguments = [dir as usize, path as usize, flags as usize, mode as usize];
            // SAFETY: by the contract.
            unsafe { call.system_call_on_thread(libc::SYS_openat, arguments) }
        }
        result => result,
    })
}

/// Waits for the writer of a FIFO, and makes the descriptor a blocking one.
fn opened(call: Call, fd: RawFd, flags: c_int) -> isize {
    let close = |code| {
        // SAFETY: no pointers; the descriptor is new.
        unsafe { syscall!(SYS_close, fd) };
        code
    };
    if sys::is_fifo(fd) && flags & libc::O_ACCMODE == libc::O_RDONLY {
        // SAFETY: the contract of `borrow_raw`: the descriptor is open until this function returns
        // it or closes it.
        let reader = unsafe { BorrowedFd::borrow_raw(fd) };
        if let Err(e) = wait_for_fifo_writer(call.current, &reader) {
            return close(call.code(&e));
        }
    }
    // SAFETY: no pointers.
    match unsafe { syscall!(SYS_fcntl, fd, libc::F_SETFL, flags) } {
        0 => fd as isize,
        code => close(code),
    }
}

/// # Safety
///
/// The path is a valid C string.
unsafe fn is_fifo(dir: RawFd, path: *const c_char) -> bool {
    // SAFETY: an all-zero structure of integers is valid; by the contract.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        syscall!(SYS_newfstatat, dir, path, &raw mut stat, 0) == 0
            && stat.st_mode & libc::S_IFMT == libc::S_IFIFO
    }
}

/// `fsync` and `fdatasync`.
///
/// # Safety
///
/// As libc's, which has no contract.
pub(super) unsafe fn sync(on: OnFiber, fd: c_int, data_only: bool) -> c_int {
    on.call_int(|call| {
        call.admit()?;
        if call.is_plain() {
            let number = if data_only { libc::SYS_fdatasync } else { libc::SYS_fsync };
            // SAFETY: no pointers.
            return Ok(unsafe { raw::call(number, [fd as usize]) });
        }
        Ok(call.perform(Op::File(FileOp::Sync { fd, data_only })))
    })
}

/// # Safety
///
/// As libc's.
pub unsafe fn flock(on: OnFiber, fd: c_int, how: c_int) -> c_int {
    on.call_int(|call| {
        // SAFETY: no pointers.
        let attempt = |how: c_int| unsafe { syscall!(SYS_flock, fd, how) };
        if how != libc::LOCK_SH && how != libc::LOCK_EX {
            return Ok(attempt(how));
        }
        call.admit()?;
        match attempt(how | libc::LOCK_NB) {
            WOULD_WAIT => {}
            result => return Ok(result),
        }
        let waited = borrow_number(fd).and_then(|file| file.wait_for(how));
        waited.map_or_else(|e| Err(call.code(&e)), |()| Ok(0))
    })
}

/// `fcntl` with `F_SETLKW` or `F_OFD_SETLKW`: asks again with growing pauses. Locks of other fibers
/// belong to the same process, so only other processes are waited for. Unlike the kernel, it finds
/// no deadlock (`EDEADLK`).
///
/// # Safety
///
/// As libc's.
pub(super) unsafe fn wait_for_record(
    on: OnFiber,
    fd: c_int,
    command: c_int,
    lock: c_long,
) -> c_int {
    const DENIED: isize = -(libc::EACCES as isize);
    let command = match command {
        libc::F_SETLKW => libc::F_SETLK,
        _ => libc::F_OFD_SETLK,
    };
    on.call_int(|call| {
        call.admit()?;
        // SAFETY: by the contract.
        call.poll(|| match unsafe { syscall!(SYS_fcntl, fd, command, lock) } {
            WOULD_WAIT | DENIED => None,
            result => Some(result),
        })
    })
}

/// Copies within the kernel: on a thread, because the files decide whether it waits. A peer's
/// readiness is waited for before, which a cancel ends; not if the call copies no bytes, or refuses
/// streams.
///
/// # Safety
///
/// The arguments come from the interposed call.
unsafe fn copy<const N: usize>(
    on: OnFiber,
    from: RawFd,
    to: RawFd,
    len: size_t,
    number: c_long,
    arguments: [usize; N],
) -> ssize_t {
    on.call(|call| {
        call.admit()?;
        let may_wait = len > 0 && number != libc::SYS_copy_file_range;
        for (fd, events) in [(from, libc::POLLIN), (to, libc::POLLOUT)] {
            let is_stream = matches!(sys::mode(fd) & libc::S_IFMT, libc::S_IFSOCK | libc::S_IFIFO);
            if may_wait && is_stream && !super::sockets::is_nonblocking(fd) {
                call.ready(fd, events, None)?;
            }
        }
        // SAFETY: by the contract.
        Ok(unsafe { call.system_call_on_thread(number, arguments) })
    })
}

calls! {
    OnFiber:
    fn sendfile(to: c_int, from: c_int, offset: *mut libc::off_t, count: size_t) -> ssize_t;
    |on| {
        let arguments = [to as usize, from as usize, offset as usize, count];
        copy(on, from, to, count, libc::SYS_sendfile, arguments)
    };
}

/// The calls that copy between two files, each of which may have an offset of its own.
macro_rules! copies {
    ($($name:ident = $number:ident, $offset:ty;)*) => {$(calls! {
        OnFiber:
        fn $name(
            from: c_int, from_offset: *mut $offset, to: c_int, to_offset: *mut $offset,
            len: size_t, flags: libc::c_uint,
        ) -> ssize_t;
        |on| {
            let (from_offset, to_offset) = (from_offset as usize, to_offset as usize);
            let arguments =
                [from as usize, from_offset, to as usize, to_offset, len, flags as usize];
            copy(on, from, to, len, libc::$number, arguments)
        };
    })*};
}

copies! {
    splice = SYS_splice, libc::loff_t;
    copy_file_range = SYS_copy_file_range, libc::off64_t;
}
