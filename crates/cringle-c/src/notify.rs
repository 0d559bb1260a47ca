//! How the caller of a submission learns of its end, and the descriptor of a queue.

use crate::abi::CRINGLE_PENDING;
use crate::error::Error;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notify {
    Callback { callback: unsafe extern "C" fn(*mut c_void, c_int), arg: *mut c_void },
    Eventfd { eventfd: c_int, status: *const AtomicI32 },
}

impl Notify {
    /// Returns the notification by an eventfd, after a check.
    ///
    /// # Errors
    ///
    /// `EFAULT`, `EBADF` or `EINVAL`, if one of the two cannot be used.
    pub(crate) fn eventfd(eventfd: c_int, status: *mut c_int) -> Result<Notify, Error> {
        if status.is_null() {
            return Err(Error::new(libc::EFAULT, "`status` is NULL"));
        }
        if !status.is_aligned() {
            return Err(Error::new(libc::EINVAL, "`status` is not aligned to 4 bytes"));
        }
        check_eventfd(eventfd)?;
        let status = status.cast_const().cast::<AtomicI32>();
        Ok(Notify::Eventfd { eventfd, status })
    }

    /// Marks the submission as pending.
    pub(crate) fn begin(&self) {
        if let Notify::Eventfd { status, .. } = *self {
            // SAFETY: the caller's contract: the status is the library's from here on.
            unsafe { (*status).store(CRINGLE_PENDING, Ordering::Relaxed) };
        }
    }

    /// Notifies the caller. The submission has ended, so its memory is the caller's from here on.
    pub(crate) fn notify(self, failed: c_int) {
        match self {
            // SAFETY: the caller's contract.
            Notify::Callback { callback, arg } => unsafe { callback(arg, failed) },
            Notify::Eventfd { eventfd, status } => {
                // SAFETY: the caller's contract: `status` is the library's until this store.
                unsafe { (*status).store(failed, Ordering::Release) };
                add_one(eventfd);
            }
        }
    }
}

/// An eventfd of the library, which is readable between `set` and `clear`.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> io::Result<Event> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new.
        Ok(Event(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(crate) fn set(&self) {
        // It fails only if the count is the largest, and then the eventfd is readable.
        let _ = add(self.fd(), 1);
    }

    pub(crate) fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: the variable has 8 bytes. The call does not wait, and fails if the count is 0.
        unsafe { libc::read(self.fd(), (&raw mut count).cast(), size_of::<u64>()) };
    }
}

/// Checks that a descriptor is an eventfd.
///
/// The kernel's files without an inode of their own have no type: epoll, timerfd and others besides
/// eventfd. Of these an eventfd alone accepts 8 bytes. It adds their value, 0, which never waits,
/// also if the count is the largest. (A link below `/proc` would name the kind, where there is
/// `/proc`.)
fn check_eventfd(fd: c_int) -> Result<(), Error> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the structure is borrowed for the call.
    if unsafe { libc::fstat(fd, found.as_mut_ptr()) } != 0 {
        return Err(Error::new(libc::EBADF, format!("the eventfd {fd} is not open")));
    }
    // SAFETY: the call has filled it.
    let has_type = unsafe { found.assume_init() }.st_mode & libc::S_IFMT != 0;
    if has_type || add(fd, 0).is_err() {
        let text = format!("descriptor {fd} is no eventfd, which is what eventfd(2) returns");
        return Err(Error::new(libc::EINVAL, text));
    }
    Ok(())
}

/// Adds 1 to an eventfd. If it is full, its reader has enough to read, and a write would block the
/// worker.
fn add_one(eventfd: c_int) {
    let mut room = libc::pollfd { fd: eventfd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: the structure is borrowed for the call, which does not wait.
    if unsafe { libc::poll(&raw mut room, 1, 0) } == 0 {
        return;
    }
    // It fails only if the caller has closed it, in breach of the contract.
    let _ = add(eventfd, 1);
}

fn add(eventfd: c_int, number: u64) -> io::Result<()> {
    loop {
        // SAFETY: the variable has 8 bytes.
        let count = unsafe { libc::write(eventfd, (&raw const number).cast(), size_of::<u64>()) };
        if count >= 0 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}
