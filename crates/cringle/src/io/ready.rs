//! Waiting for what others do I/O with.

use crate::driver::Op;
use crate::fiber::op::perform;
use crate::runtime::worker::Worker;
use crate::sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// What to wait for on a descriptor, and what has come: `poll(2)`'s events.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interest(u32);

impl Interest {
    /// There is something to read, or the other side has closed.
    pub const READABLE: Interest = Interest(libc::POLLIN as u32 | libc::POLLRDHUP as u32);
    /// Something can be written.
    pub const WRITABLE: Interest = Interest(libc::POLLOUT as u32);
    /// Exceptional data, as a socket's urgent byte or a change in `/sys`.
    pub const PRIORITY: Interest = Interest(libc::POLLPRI as u32);

    /// The events as `poll(2)` names them. Errors and hang-ups are always among those waited for.
    pub const fn from_poll_events(events: u16) -> Interest {
        Interest(events as u32)
    }

    /// The events as `poll(2)` names them.
    pub const fn poll_events(self) -> u16 {
        self.0 as u16
    }

    /// Whether a read would not wait.
    pub fn is_readable(self) -> bool {
        self.0 & (libc::POLLIN | libc::POLLHUP | libc::POLLERR | libc::POLLRDHUP) as u32 != 0
    }

    /// Whether a write would not wait.
    pub fn is_writable(self) -> bool {
        self.0 & (libc::POLLOUT | libc::POLLHUP | libc::POLLERR) as u32 != 0
    }
}

impl std::ops::BitOr for Interest {
    type Output = Interest;

    fn bitor(self, other: Interest) -> Interest {
        Interest(self.0 | other.0)
    }
}

impl std::fmt::Debug for Interest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Interest({:#x})", self.0)
    }
}

/// Waits until a descriptor is ready, and says for what: for foreign ones that the library has no
/// type for (inotify, netlink, a C library's socket). Only the calling fiber waits; outside of a
/// fiber the thread does.
/// May suspend the calling fiber.
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
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// What `poll` says of the descriptor; [`Cancelled`](crate::Cancelled).
///
/// # Cancellation
///
/// The wait is given up.
pub fn ready(fd: &impl AsFd, interest: Interest) -> io::Result<Interest> {
    let op = Op::Poll { fd: fd.as_fd().as_raw_fd(), events: interest.0 };
    let events = match Worker::current() {
        Some((worker, fiber)) => perform(worker, fiber, op)?,
        // SAFETY: the op has no pointers.
        None => sys::result_of(unsafe { crate::driver::blocking::perform(&op) })?,
    };
    if events & libc::POLLNVAL as usize != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    Ok(Interest(events as u32))
}
