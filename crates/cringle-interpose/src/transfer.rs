//! `read`, `write` and their kin.
//!
//! Each call is attempted without waiting (`RWF_NOWAIT`), and what the attempt does not do is
//! performed by the same layer as a [`File`]'s calls: at the cursor of a seekable file by a plain
//! call or on the pool (**I11**), else through the driver. Before the first attempt nothing of the
//! caller's memory is touched, so that the kernel reports a bad address.

use super::call::{BROKEN_PIPE, Call, OnFiber, WOULD_WAIT};
use super::held::Held;
use super::slices::Slices;
use super::{modes, sockets};
use cringle_std::fs::File;
use cringle_std::internal::{InternalFile, borrow_number};
use cringle_sys::{self as sys, raw, syscall};
use libc::{iovec, off_t, size_t, ssize_t};
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

const NOWAIT_UNSUPPORTED: isize = -(libc::EOPNOTSUPP as isize);
/// The most bytes of a write that the worker's thread makes by the plain call.
const SMALL: usize = 64 << 10;

/// A read or a write of an interposed call.
struct Transfer {
    call: Call,
    fd: RawFd,
    /// The offset; −1 for the cursor.
    offset: i64,
    write: bool,
    slices: Slices,
}

/// What an attempt has done.
enum Attempt {
    Done(isize),
    /// The bytes so far. The rest has to wait.
    Rest(usize),
}

calls! {
    OnFiber:
    fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t;
    |on| transfer(on, fd, Slices::one(buf, len), -1, false);

    fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t;
    |on| transfer(on, fd, Slices::one(buf.cast_mut(), len), -1, true);

    fn readv(fd: c_int, slices: *const iovec, count: c_int) -> ssize_t;
    |on| transfer(on, fd, Slices::many(slices, count), -1, false);

    fn writev(fd: c_int, slices: *const iovec, count: c_int) -> ssize_t;
    |on| transfer(on, fd, Slices::many(slices, count), -1, true);

    fn pread(fd: c_int, buf: *mut c_void, len: size_t, offset: off_t) -> ssize_t;
    |on| transfer(on, fd, Slices::one(buf, len), checked(offset), false);

    fn pwrite(fd: c_int, buf: *const c_void, len: size_t, offset: off_t) -> ssize_t;
    |on| transfer(on, fd, Slices::one(buf.cast_mut(), len), checked(offset), true);

    fn preadv(fd: c_int, slices: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    |on| transfer(on, fd, Slices::many(slices, count), checked(offset), false);

    fn pwritev(fd: c_int, slices: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    |on| transfer(on, fd, Slices::many(slices, count), checked(offset), true);

    fn preadv2(
        fd: c_int, slices: *const iovec, count: c_int, offset: off_t, flags: c_int,
    ) -> ssize_t;
    |on| transfer_with(on, fd, Slices::many(slices, count), offset, flags, false);

    fn pwritev2(
        fd: c_int, slices: *const iovec, count: c_int, offset: off_t, flags: c_int,
    ) -> ssize_t;
    |on| transfer_with(on, fd, Slices::many(slices, count), offset, flags, true);
}

/// An offset that is not mistaken for the cursor: `preadv2` takes −1 for it, and `pread` refuses
/// it.
fn checked(offset: off_t) -> i64 {
    if offset < 0 { i64::MIN } else { offset }
}

/// # Safety
///
/// As libc's call.
unsafe fn transfer(on: OnFiber, fd: RawFd, slices: Slices, offset: i64, write: bool) -> isize {
    on.call(|call| {
        let mut transfer = Transfer { call, fd, offset, write, slices };
        // SAFETY: by the contract.
        unsafe { transfer.perform() }
    })
}

/// # Safety
///
/// As libc's call.
unsafe fn transfer_with(
    on: OnFiber,
    fd: RawFd,
    slices: Slices,
    offset: i64,
    flags: c_int,
    write: bool,
) -> isize {
    if flags == 0 {
        // SAFETY: by the contract.
        return unsafe {
            transfer(on, fd, slices, if offset < -1 { i64::MIN } else { offset }, write)
        };
    }
    on.call(|call| {
        call.admit()?;
        // SAFETY: by the contract.
        let attempt = unsafe { slices.call(fd, offset, flags | libc::RWF_NOWAIT, write) };
        let waits = attempt == WOULD_WAIT || attempt == NOWAIT_UNSUPPORTED;
        if !waits || flags & libc::RWF_NOWAIT != 0 {
            return Ok(attempt);
        }
        let (first, count) = slices.parts();
        let number = if write { libc::SYS_pwritev2 } else { libc::SYS_preadv2 };
        let arguments = [fd as usize, first as usize, count, offset as usize, 0, flags as usize];
        // SAFETY: by the contract.
        Ok(unsafe { call.system_call_on_thread(number, arguments) })
    })
}

/// Whether a file is as large as the process may make files (`RLIMIT_FSIZE`).
#[cold]
fn is_at_limit(fd: RawFd) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let none = std::ptr::null::<libc::rlimit>();
    // SAFETY: the structures are borrowed for the calls; all zeros are a `stat`.
    unsafe {
        syscall!(SYS_prlimit64, 0, libc::RLIMIT_FSIZE, none, &raw mut limit);
        if limit.rlim_cur == libc::RLIM_INFINITY {
            return false;
        }
        let mut stat: libc::stat = std::mem::zeroed();
        syscall!(SYS_fstat, fd, &raw mut stat) == 0 && stat.st_size as u64 >= limit.rlim_cur
    }
}

impl Transfer {
    /// # Safety
    ///
    /// The buffers come from the interposed call.
    unsafe fn perform(&mut self) -> Result<isize, isize> {
        let admitted = self.admit();
        if admitted.is_err() && self.is_wake_up() {
            let call = self.call;
            // SAFETY: by the contract.
            return Ok(call.shielded(|| unsafe { self.perform_admitted() }));
        }
        admitted?;
        // SAFETY: by the contract.
        Ok(unsafe { self.perform_admitted() })
    }

    /// Whether this wakes, or takes the wake-ups of, an event loop. A cancelled fiber's are
    /// performed: an event loop does not expect that they fail, and other fibers may wait for them.
    /// They do not wait, except for the reader of a counter that is full.
    fn is_wake_up(&self) -> bool {
        // An eventfd's file has no type.
        match sys::mode(self.fd) & libc::S_IFMT {
            0 => self.write || sockets::is_nonblocking(self.fd),
            libc::S_IFIFO => {
                let is_small = self.slices.only_len().is_some_and(|len| len <= size_of::<u64>());
                self.write && is_small && sockets::is_nonblocking(self.fd)
            }
            _ => false,
        }
    }

    /// # Safety
    ///
    /// As for [`perform`](Self::perform).
    unsafe fn perform_admitted(&mut self) -> isize {
        // SAFETY: by the contract.
        unsafe {
            let done = match self.attempt() {
                Attempt::Done(result) => return result,
                Attempt::Rest(done) => done,
            };
            let held = Held::new(self.fd);
            let result = self.wait(done, &held);
            if result == BROKEN_PIPE {
                // A driver raises no `SIGPIPE`; the plain call does.
                return held.with(|fd| self.slices.call(fd, self.offset, libc::RWF_NOWAIT, true));
            }
            result
        }
    }

    /// A write to standard output or standard error is refused only if it has to wait: `println!`
    /// panics if it fails.
    fn admit(&self) -> Result<(), isize> {
        if self.write && matches!(self.fd, 1 | 2) { Ok(()) } else { self.call.admit() }
    }

    /// Transfers what is possible without waiting.
    ///
    /// # Safety
    ///
    /// As for [`perform`](Self::perform).
    unsafe fn attempt(&mut self) -> Attempt {
        if !self.call.may_attempt_transfer(self.fd, self.write) || self.is_direct() {
            return Attempt::Rest(0);
        }
        let mut done = 0;
        let mut flags = if self.is_known_as_plain() { 0 } else { libc::RWF_NOWAIT };
        loop {
            // SAFETY: by the contract. The kernel has accepted the buffers where they are counted.
            unsafe {
                let result = self.slices.call(self.fd, self.offset, flags, self.write);
                match result {
                    NOWAIT_UNSUPPORTED if flags != 0 && self.is_plain_write() => {
                        flags = 0;
                        continue;
                    }
                    WOULD_WAIT | NOWAIT_UNSUPPORTED => return Attempt::Rest(done),
                    // The next call reports the error.
                    ..=-1 if done > 0 => return Attempt::Done(done as isize),
                    ..=-1 => return Attempt::Done(result),
                    0 if done == 0 && self.slices.len() == 0 => return self.empty(),
                    0 => return Attempt::Done(done as isize),
                    _ => {}
                }
                let count = result as usize;
                done += count;
                if count == self.slices.len() || !self.continues() {
                    return Attempt::Done(done as isize);
                }
                self.skip(count);
                if sys::mode(self.fd) & libc::S_IFMT == libc::S_IFSOCK {
                    // It is full. If its peer closes it now, another attempt would raise `SIGPIPE`,
                    // which a call that has sent a part does not.
                    return Attempt::Rest(done);
                }
            }
        }
    }

    /// Whether the last calls on this number were small writes to a file that takes them by the
    /// plain call. At the cursor the file is asked each time: a pipe that has the number now could
    /// wait for ever.
    fn is_known_as_plain(&self) -> bool {
        let is_small = self.slices.only_len().is_some_and(|len| len <= SMALL);
        self.write && is_small && self.offset >= 0 && modes::is_known_as_plain(self.fd)
    }

    /// Whether this is a small write to the page cache of a file whose writes cannot be attempted,
    /// as on ext4. It takes less time than the ways through a kernel thread or the pool, and the
    /// fiber keeps its turn: it may hold a lock of the program's.
    ///
    /// # Safety
    ///
    /// The kernel has accepted the buffers.
    unsafe fn is_plain_write(&self) -> bool {
        // SAFETY: by the contract.
        self.write && unsafe { self.slices.len() } <= SMALL && modes::takes_plain_writes(self.fd)
    }

    /// # Safety
    ///
    /// The kernel has transferred these bytes.
    unsafe fn skip(&mut self, count: usize) {
        // SAFETY: by the contract.
        unsafe { self.slices.advance(count) };
        if self.offset >= 0 {
            self.offset += count as i64;
        }
    }

    /// An empty transfer. The calls with slices do not ask the file. `read` and `write` do, which
    /// may refuse it, and sends an empty datagram. Files that could wait are asked on a thread.
    ///
    /// # Safety
    ///
    /// As for [`perform`](Self::perform).
    unsafe fn empty(&self) -> Attempt {
        let Transfer { call, fd, offset, write, ref slices } = *self;
        let Some(0) = slices.only_len() else {
            // SAFETY: by the contract.
            return Attempt::Done(unsafe { slices.call(fd, offset, 0, write) });
        };
        let kind = sys::mode(fd) & libc::S_IFMT;
        if write && offset == -1 && kind == libc::S_IFSOCK {
            let (null, flags) = (std::ptr::null::<()>(), libc::MSG_DONTWAIT);
            // SAFETY: by the contract of the call: null is allowed.
            return match unsafe { syscall!(SYS_sendto, fd, null, 0, flags, null, 0) } {
                WOULD_WAIT => Attempt::Rest(0),
                result => Attempt::Done(result),
            };
        }
        let number = match (offset, write) {
            (-1, false) => libc::SYS_read,
            (-1, true) => libc::SYS_write,
            (_, false) => libc::SYS_pread64,
            (_, true) => libc::SYS_pwrite64,
        };
        // SAFETY: by the contract. (The address is only checked by the call.)
        let buf = unsafe { (*slices.parts().0).iov_base };
        let arguments = [fd as usize, buf as usize, 0, offset as usize];
        Attempt::Done(match kind {
            // SAFETY: by the contract.
            0 | libc::S_IFCHR => unsafe { call.system_call_on_thread(number, arguments) },
            // SAFETY: as above.
            _ => unsafe { raw::call(number, arguments) },
        })
    }

    /// Whether a transfer that stopped short continues, as the plain call would: of a file, and of
    /// a blocking write to a pipe or a socket. A write to a file may have ended at the limit of its
    /// size. The plain call returns then; another attempt would raise `SIGXFSZ`.
    fn continues(&self) -> bool {
        match sys::mode(self.fd) & libc::S_IFMT {
            libc::S_IFREG if self.write => !is_at_limit(self.fd),
            libc::S_IFREG | libc::S_IFBLK => true,
            libc::S_IFIFO | libc::S_IFSOCK if self.write => !sockets::is_nonblocking(self.fd),
            _ => false,
        }
    }

    /// Whether the kernel would wait in spite of `RWF_NOWAIT`: for direct I/O, whose offset and
    /// length are multiples of 512 bytes.
    fn is_direct(&self) -> bool {
        let is_aligned = |number: u64| number.is_multiple_of(512);
        let may_be = match self.slices.only_len() {
            Some(0) => false,
            Some(len) => {
                is_aligned(len as u64) && (self.offset < 0 || is_aligned(self.offset as u64))
            }
            None => true,
        };
        may_be && modes::is_direct(self.fd)
    }

    /// Performs the rest, after `done` bytes, while the fiber waits.
    ///
    /// # Safety
    ///
    /// As for [`perform`](Self::perform).
    #[cold]
    unsafe fn wait(&mut self, mut done: usize, held: &Held) -> isize {
        loop {
            self.fd = held.number();
            // SAFETY: by the contract; the attempt has had the kernel look at the buffers.
            unsafe {
                match self.wait_once() {
                    ..=-1 if done > 0 => return done as isize,
                    0 if done > 0 => return done as isize,
                    result @ ..=0 => return result,
                    count => {
                        let count = count as usize;
                        done += count;
                        if !self.write || count == self.slices.len() || !self.continues() {
                            return done as isize;
                        }
                        self.skip(count);
                    }
                }
            }
        }
    }

    /// # Safety
    ///
    /// As for [`wait`](Self::wait).
    unsafe fn wait_once(&self) -> isize {
        // SAFETY: by the contract.
        unsafe {
            match self.offset {
                0.. => self.at_offset(),
                -1 if sys::mode(self.fd) & libc::S_IFMT == libc::S_IFSOCK => {
                    sockets::transfer(self.call, self.fd, &self.slices, self.write)
                }
                -1 => self.on_file(|file, op| file.perform_at_cursor(op)),
                // The kernel refuses the offset.
                _ => self.slices.call(self.fd, self.offset, 0, self.write),
            }
        }
    }

    /// # Safety
    ///
    /// As for [`wait`](Self::wait).
    unsafe fn at_offset(&self) -> isize {
        // SAFETY: by the contract.
        unsafe { self.on_file(|file, op| file.perform_at_offset(op)) }
    }

    /// # Safety
    ///
    /// As for [`wait`](Self::wait).
    unsafe fn on_file(
        &self,
        perform: impl Fn(&File, cringle_driver::Op) -> std::io::Result<usize>,
    ) -> isize {
        let file = match borrow_number(self.fd) {
            Ok(file) => file,
            Err(e) => return self.call.code(&e),
        };
        let offset = u64::try_from(self.offset).ok();
        loop {
            match perform(&file, self.slices.op(self.fd, offset, self.write)) {
                Ok(count) => return count as isize,
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                Err(e) => return self.call.code(&e),
            }
        }
    }
}
