//! One epoll instance, in which each descriptor is armed for one event at a time.
//!
//! It uses libc and not the `polling` crate, which makes five system calls for each wait (it arms
//! its timer and its notification anew) where one is enough.

use crate::kept::Own;
use cringle_sys::{self as sys, Owned, syscall};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// The number of events that one call returns at most.
const MAX_EVENTS: usize = 256;
/// The key of the eventfd. No descriptor has it: they are not negative.
const WAKE_KEY: u64 = u64::MAX;

pub(super) const IN: u32 = libc::EPOLLIN as u32;
pub(super) const OUT: u32 = libc::EPOLLOUT as u32;
/// Events that the kernel reports without being asked.
pub(super) const BROKEN: u32 = libc::EPOLLERR as u32 | libc::EPOLLHUP as u32;

pub(super) struct Poller {
    _own: Own,
    epoll: Owned,
    /// The eventfd by which other threads wake the worker. It stays armed.
    wake_fd: RawFd,
    events: Box<[libc::epoll_event]>,
    /// Whether `epoll_pwait2` (Linux 5.11) exists and no seccomp filter hides it.
    has_pwait2: bool,
}

/// The events of one descriptor.
pub(super) struct Event {
    pub(super) fd: RawFd,
    pub(super) events: u32,
}

impl Poller {
    pub(super) fn new(wake_fd: RawFd) -> io::Result<Poller> {
        // SAFETY: no pointers are passed; the descriptor is newly opened and owned here.
        let epoll = unsafe {
            match libc::epoll_create1(libc::EPOLL_CLOEXEC) {
                -1 => return Err(explain(io::Error::last_os_error())),
                fd => Owned::of_new(fd),
            }
        };
        let empty = libc::epoll_event { events: 0, u64: 0 };
        let events = vec![empty; MAX_EVENTS].into();
        let own = Own::new(epoll.as_raw_fd());
        let mut poller = Poller { _own: own, epoll, wake_fd, events, has_pwait2: true };
        poller
            .control(libc::EPOLL_CTL_ADD, wake_fd, IN, WAKE_KEY)
            .map_err(io::Error::from_raw_os_error)?;
        poller.has_pwait2 = poller.pwait2(Some(Duration::ZERO)) >= 0;
        Ok(poller)
    }

    /// Requests the next event of these kinds on a descriptor, which is reported once. The error is
    /// an `errno`.
    ///
    /// The kernel forgets a descriptor that is closed, and its number may mean another file by now.
    /// So the driver keeps no list of the descriptors that the kernel knows: it modifies, and adds
    /// if that fails.
    pub(super) fn arm(&self, fd: RawFd, events: u32) -> Result<(), i32> {
        let events = events | libc::EPOLLONESHOT as u32;
        match self.control(libc::EPOLL_CTL_MOD, fd, events, fd as u64) {
            Err(libc::ENOENT) => self.control(libc::EPOLL_CTL_ADD, fd, events, fd as u64),
            result => result,
        }
    }

    fn control(&self, what: i32, fd: RawFd, events: u32, key: u64) -> Result<(), i32> {
        let mut event = libc::epoll_event { events, u64: key };
        // SAFETY: the kernel reads the structure, which is borrowed for the call.
        match unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), what, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(sys::errno()),
        }
    }

    /// Waits for events, at most this long (`None`: without a limit), and returns their number. A
    /// signal ends the wait.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> usize {
        let count = match (self.has_pwait2, timeout) {
            (true, _) => self.pwait2(timeout),
            (false, Some(Duration::ZERO)) => self.poll_now(),
            (false, _) => {
                self.sleep(timeout);
                self.poll_now()
            }
        };
        if count < 0 && count != -libc::EINTR {
            broken(-count);
        }
        count.max(0) as usize
    }

    fn pwait2(&mut self, timeout: Option<Duration>) -> i32 {
        let spec = timeout.map(sys::timespec);
        let spec = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (events, most) = (self.events.as_mut_ptr(), MAX_EVENTS);
        // SAFETY: the kernel writes at most `most` events to the borrowed slice, and reads the
        // timeout, which is null or borrowed for the call.
        unsafe {
            let epoll = self.epoll.as_raw_fd();
            syscall!(SYS_epoll_pwait2, epoll, events, most, spec, 0, 8) as i32
        }
    }

    fn poll_now(&mut self) -> i32 {
        let (epoll, events) = (self.epoll.as_raw_fd(), self.events.as_mut_ptr());
        // SAFETY: the kernel writes at most `MAX_EVENTS` events to the borrowed slice.
        unsafe { syscall!(SYS_epoll_pwait, epoll, events, MAX_EVENTS, 0, 0, 8) as i32 }
    }

    /// Sleeps until an event or the timeout. `epoll_wait` counts milliseconds, so a timer would be
    /// late.
    fn sleep(&self, timeout: Option<Duration>) {
        let limit = timeout.map(sys::timespec);
        let mut poll =
            libc::pollfd { fd: self.epoll.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // A signal may end it.
        sys::poll_once(&mut poll, limit.as_ref());
    }

    /// One of the events that [`wait`](Self::wait) has counted. `None` for the eventfd, which is
    /// cleared.
    pub(super) fn event(&self, index: usize) -> Option<Event> {
        let libc::epoll_event { events, u64: key } = self.events[index];
        if key == WAKE_KEY {
            // SAFETY: I9. The eventfd outlives the driver, by the contract of `Epoll::new`.
            sys::eventfd_clear(unsafe { std::os::fd::BorrowedFd::borrow_raw(self.wake_fd) });
            return None;
        }
        Some(Event { fd: key as RawFd, events })
    }
}

fn explain(e: io::Error) -> io::Error {
    let text = match e.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => {
            format!(
                "no file descriptor is left for an epoll: {e}; raise RLIMIT_NOFILE (`ulimit -n`)"
            )
        }
        _ => format!("cannot make an epoll: {e}"),
    };
    sys::explained(e, text)
}

/// Aborts: the fibers of this worker would wait for ever.
#[cold]
fn broken(errno: i32) -> ! {
    let error = io::Error::from_raw_os_error(errno);
    sys::report(format_args!(
        "epoll_wait failed: {error}. The worker's epoll is unusable (was its descriptor closed by \
         something else?); aborting, because its fibers would wait for ever"
    ));
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::time::Instant;

    /// With `epoll_pwait2` and without it.
    #[test]
    fn a_wait_ends_by_timeout_and_by_eventfd() {
        for has_pwait2 in [true, false] {
            let wake_fd = sys::eventfd().unwrap();
            let mut poller = Poller::new(wake_fd.as_raw_fd()).unwrap();
            poller.has_pwait2 &= has_pwait2;
            assert_eq!(poller.wait(Some(Duration::ZERO)), 0);
            let start = Instant::now();
            assert_eq!(poller.wait(Some(Duration::from_micros(2300))), 0);
            assert!(start.elapsed() >= Duration::from_micros(2300));
            for timeout in [None, Some(Duration::ZERO), Some(Duration::from_secs(3600))] {
                sys::eventfd_signal(wake_fd.as_fd());
                assert_eq!(poller.wait(timeout), 1);
                assert!(poller.event(0).is_none());
                assert_eq!(poller.wait(Some(Duration::ZERO)), 0, "the eventfd was cleared");
            }
        }
    }

    #[test]
    fn an_event_is_reported_once_for_each_arming() {
        let wake_fd = sys::eventfd().unwrap();
        let mut poller = Poller::new(wake_fd.as_raw_fd()).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let fd = reader.as_raw_fd();
        std::io::Write::write_all(&mut &writer, &[7]).unwrap();
        for _ in 0..2 {
            poller.arm(fd, IN).unwrap();
            assert_eq!(poller.wait(None), 1);
            let event = poller.event(0).unwrap();
            assert_eq!((event.fd, event.events), (fd, IN));
            assert_eq!(poller.wait(Some(Duration::ZERO)), 0);
        }
        let file = tempfile::tempfile().unwrap();
        assert_eq!(poller.arm(file.as_raw_fd(), IN), Err(libc::EPERM));
    }

    #[test]
    fn error_without_descriptors_names_the_limit() {
        for (errno, remedy) in [(libc::EMFILE, true), (libc::ENFILE, true), (libc::ENOMEM, false)] {
            let error = explain(io::Error::from_raw_os_error(errno));
            assert_eq!(error.to_string().contains("RLIMIT_NOFILE"), remedy);
            assert_eq!(error.kind(), io::Error::from_raw_os_error(errno).kind());
        }
    }
}
