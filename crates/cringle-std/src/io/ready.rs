//! Waiting for the readiness of descriptors on which other code performs the I/O.

use crate::fiber::op::perform;
use cringle_core::worker::Current;
use cringle_driver::Op;
use cringle_sys as sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The events to wait for on a descriptor, and the events that have occurred, as `poll(2)` defines
/// them.
///
/// ```
/// use cringle::io::Interest;
///
/// let both = Interest::READABLE | Interest::WRITABLE;
/// assert!(both.is_readable() && both.is_writable());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interest(u32);

impl Interest {
    /// Data can be read, or the peer has closed the connection.
    ///
    /// ```
    /// assert!(cringle::io::Interest::READABLE.is_readable());
    /// ```
    pub const READABLE: Interest = Interest(libc::POLLIN as u32 | libc::POLLRDHUP as u32);
    /// Data can be written.
    ///
    /// ```
    /// assert!(cringle::io::Interest::WRITABLE.is_writable());
    /// ```
    pub const WRITABLE: Interest = Interest(libc::POLLOUT as u32);
    /// An exceptional condition, such as urgent data on a socket or a change of a file in `/sys`.
    ///
    /// ```
    /// let interest = cringle::io::Interest::PRIORITY;
    /// assert_eq!(interest.poll_events(), libc::POLLPRI as u16);
    /// ```
    pub const PRIORITY: Interest = Interest(libc::POLLPRI as u32);

    /// Converts from the events of `poll(2)`. A wait always includes errors and hang-ups.
    ///
    /// ```
    /// let interest = cringle::io::Interest::from_poll_events(libc::POLLIN as u16);
    /// assert!(interest.is_readable());
    /// ```
    pub const fn from_poll_events(events: u16) -> Interest {
        Interest(events as u32)
    }

    /// Returns the events as `poll(2)` defines them.
    ///
    /// ```
    /// let interest = cringle::io::Interest::WRITABLE;
    /// assert_eq!(interest.poll_events(), libc::POLLOUT as u16);
    /// ```
    pub const fn poll_events(self) -> u16 {
        self.0 as u16
    }

    /// Returns whether a read would not wait.
    ///
    /// ```
    /// assert!(!cringle::io::Interest::WRITABLE.is_readable());
    /// ```
    pub fn is_readable(self) -> bool {
        self.0 & (libc::POLLIN | libc::POLLHUP | libc::POLLERR | libc::POLLRDHUP) as u32 != 0
    }

    /// Returns whether a write would not wait.
    ///
    /// ```
    /// assert!(!cringle::io::Interest::READABLE.is_writable());
    /// ```
    pub fn is_writable(self) -> bool {
        self.0 & (libc::POLLOUT | libc::POLLHUP | libc::POLLERR) as u32 != 0
    }
}

flags_or!(Interest);

impl std::fmt::Debug for Interest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Interest({:#x})", self.0)
    }
}

/// Waits until a descriptor is ready, and returns the events that have occurred.
/// May suspend the calling fiber.
///
/// It is for descriptors for which the library has no type, such as inotify, netlink, or a C
/// library's socket. It suspends only the calling fiber; outside of a fiber it blocks the thread.
///
/// ```
/// use cringle::io::{self, Interest};
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
///
/// cringle::run(|| {
///     let (mut ours, mut theirs) = UnixStream::pair()?;
///     theirs.write_all(b"!")?;
///     assert!(io::ready(&ours, Interest::READABLE)?.is_readable());
///     let mut byte = [0];
///     ours.read_exact(&mut byte)
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The errors of `poll(2)`, `EBADF` for an invalid descriptor, and
/// [`Cancelled`](cringle_core::cancelled::Cancelled).
///
/// # Cancellation
///
/// A cancel ends the wait.
pub fn ready(fd: &impl AsFd, interest: Interest) -> io::Result<Interest> {
    let op = Op::Poll { fd: fd.as_fd().as_raw_fd(), events: interest.0 };
    let events = match Current::get() {
        Some(current) => perform(current, op)?,
        // SAFETY: the op has no pointers.
        None => sys::result_of(unsafe { cringle_driver::blocking::perform(&op) })?,
    };
    if events & libc::POLLNVAL as usize != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    Ok(Interest(events as u32))
}
