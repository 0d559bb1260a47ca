//! The request to stop (Ctrl-C): a flag that the workers poll, and a descriptor that ends their
//! waits for other processes.

use crate::sys;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The request to stop a copy.
pub(crate) struct Stop {
    requested: AtomicBool,
    /// The copy itself requested it, after a failure.
    failed: AtomicBool,
    /// An `eventfd` that becomes readable with the request. If it could not be created, such waits
    /// continue.
    event: Option<OwnedFd>,
}

impl Default for Stop {
    fn default() -> Stop {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        Stop { requested: AtomicBool::new(false), failed: AtomicBool::new(false), event }
    }
}

impl Stop {
    /// Requests the stop; returns whether it had been requested before.
    pub(crate) fn request(&self) -> bool {
        let before = self.requested.swap(true, Ordering::Relaxed);
        if let Some(event) = &self.event {
            // This cannot fail: the counter is far from its maximum.
            let _ = sys::write_all(event.as_fd(), &1_u64.to_ne_bytes());
        }
        before
    }

    /// Requests the stop after a failure; returns whether one had happened before.
    pub(crate) fn fail(&self) -> bool {
        let before = self.failed.swap(true, Ordering::Relaxed);
        self.request();
        before
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Waits until a read of `fd` would not block; returns false if a stop is requested.
    pub(crate) fn wait_readable(&self, fd: BorrowedFd<'_>) -> bool {
        let fds = [Some(fd), self.event.as_ref().map(|event| event.as_fd())];
        let of = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds: Vec<_> = fds.into_iter().flatten().map(of).collect();
        // After any error but EINTR, the read returns it.
        while !self.is_requested() && poll(&mut fds, None) == Err(Errno::INTR) {}
        !self.is_requested()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_data_or_a_stop() {
        let (reader, writer) = std::io::pipe().unwrap();
        let stop = Stop::default();
        sys::write_all(writer.as_fd(), b"x").unwrap();
        assert!(stop.wait_readable(reader.as_fd()));
        assert_eq!(sys::read(reader.as_fd(), &mut [0; 8]).unwrap(), 1);
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| stop.wait_readable(reader.as_fd()));
            assert!(!stop.request());
            assert!(!wait.join().unwrap());
        });
        assert!(stop.request() && stop.is_requested());
    }
}
