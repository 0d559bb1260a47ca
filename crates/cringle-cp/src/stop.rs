//! The request to stop (Ctrl-C): a flag that the workers poll, and a descriptor that ends their
//! waits for other processes.

use crate::sys;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Stop {
    requested: AtomicBool,
    /// An `eventfd` that becomes readable with the request. If it could not be created, such waits
    /// continue.
    event: Option<OwnedFd>,
}

impl Default for Stop {
    fn default() -> Stop {
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        // SAFETY: the call above returned a new descriptor, which has no other owner.
        let event = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
        Stop { requested: AtomicBool::new(false), event }
    }
}

impl Stop {
    /// Requests the stop; returns whether it had been requested before.
    pub(crate) fn request(&self) -> bool {
        let before = self.requested.swap(true, Ordering::Relaxed);
        if let Some(event) = &self.event {
            // This cannot fail: the counter is far from its maximum.
            let _ = sys::write_all(event.as_raw_fd(), &1_u64.to_ne_bytes());
        }
        before
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Waits until a read of `fd` would not block; returns false if a stop is requested.
    pub(crate) fn wait_readable(&self, fd: RawFd) -> bool {
        let event = self.event.as_ref().map_or(-1, |event| event.as_raw_fd());
        let of = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut both = [of(fd), of(event)];
        // SAFETY: `both` has two records and outlives the call.
        while !self.is_requested() && unsafe { libc::poll(both.as_mut_ptr(), 2, -1) } < 0 {
            // Any error but EINTR: the read returns it.
            if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                break;
            }
        }
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
        sys::write_all(writer.as_raw_fd(), b"x").unwrap();
        assert!(stop.wait_readable(reader.as_raw_fd()));
        assert_eq!(sys::read(reader.as_raw_fd(), &mut [0; 8]).unwrap(), 1);
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| stop.wait_readable(reader.as_raw_fd()));
            assert!(!stop.request());
            assert!(!wait.join().unwrap());
        });
        assert!(stop.request() && stop.is_requested());
    }
}
