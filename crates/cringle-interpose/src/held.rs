//! The files of calls that wait, which [stay open](cringle_driver::kept) while the program closes
//! their descriptors. The fiber of the last call closes the duplicate, on a thread of the pool if
//! that may wait.

use super::call::{Call, WOULD_WAIT};
use cringle_driver::kept::KeptFile;
use cringle_std::internal::Backoff;
use cringle_std::internal::unblock_or_here;
use cringle_sys as sys;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// The longest wait for the readiness of one number. An op that was queued, but not submitted, when
/// the number got another file waits for that file.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(1);
const CLOSED: isize = -(libc::EBADF as isize);

/// A call's hold of its file.
pub(super) struct Held(KeptFile);

impl Held {
    pub(super) fn new(fd: RawFd) -> Held {
        Held(KeptFile::of_call(fd))
    }

    /// [`Call::ready`] of the file.
    pub(super) fn ready(
        &self,
        call: Call,
        events: i16,
        deadline: Option<Instant>,
    ) -> Result<bool, isize> {
        loop {
            let fd = self.number();
            let until = call.now().checked_add(LONGEST_WAIT);
            let until = [deadline, until].into_iter().flatten().min();
            match call.ready(fd, events, until) {
                Ok(false) if deadline.is_none_or(|at| call.now() < at) => {}
                Err(CLOSED) if self.number() != fd => {}
                readiness => return readiness,
            }
        }
    }

    /// [`ready`](Self::ready), and then pauses before the next attempt. After the deadline, the
    /// error is [`WOULD_WAIT`].
    pub(super) fn wait(
        &self,
        call: Call,
        events: i16,
        deadline: Option<Instant>,
        backoff: &mut Backoff,
    ) -> Result<(), isize> {
        if self.ready(call, events, deadline)? { call.pause(backoff) } else { Err(WOULD_WAIT) }
    }
}

derefs!([] Held => KeptFile, |it| &it.0);

impl Drop for Held {
    fn drop(&mut self) {
        // The fiber is still in the call, and may wait.
        if let Some(file) = self.0.end()
            && sys::close_waits(file.as_raw_fd())
        {
            unblock_or_here(|| file.close_slowly());
        }
    }
}
