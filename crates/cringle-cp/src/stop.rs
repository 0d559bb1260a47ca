//! Ctrl-C: a flag that the workers look at, and a descriptor that ends their waits for other processes.

use crate::sys;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Stop {
    requested: AtomicBool,
    /// An `eventfd`, readable once it was requested. Without one, such waits go on.
    bell: Option<OwnedFd>,
}

impl Default for Stop {
    fn default() -> Stop {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        // SAFETY: a descriptor that was made here has no other owner.
        let bell = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
        Stop { requested: AtomicBool::new(false), bell }
    }
}

impl Stop {
    /// Returns whether it was requested before.
    pub(crate) fn request(&self) -> bool {
        let before = self.requested.swap(true, Ordering::Relaxed);
        if let Some(bell) = &self.bell {
            // (It cannot fail: the counter is far from full.)
            let _ = sys::write_all(bell.as_raw_fd(), &1_u64.to_ne_bytes());
        }
        before
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Waits until a read of `fd` would not; false if it was stopped before that.
    pub(crate) fn wait_readable(&self, fd: RawFd) -> bool {
        let bell = self.bell.as_ref().map_or(-1, |bell| bell.as_raw_fd());
        let of = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut both = [of(fd), of(bell)];
        // SAFETY: the array has as many records as it is said to have.
        while !self.is_requested() && unsafe { libc::poll(both.as_mut_ptr(), 2, -1) } < 0 {
            // An error other than EINTR: the read finds out.
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
    fn a_wait_ends_with_bytes_or_with_the_question() {
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
