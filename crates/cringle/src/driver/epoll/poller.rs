//! The kernel's part: one `epoll`, in which each descriptor is armed for one event at a time.
//!
//! By libc and not by the `polling` crate, whose every wait is five system calls where one does (its
//! timer and its notification are armed anew each time): 1.3 µs against 0.16.

use crate::sys;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Events taken by one call.
const EVENTS: usize = 256;
/// What the wake_fd is known by. Descriptors are not negative.
const WAKE_KEY: u64 = u64::MAX;

pub(super) const IN: u32 = libc::EPOLLIN as u32;
pub(super) const OUT: u32 = libc::EPOLLOUT as u32;
/// Event of though nobody asks.
pub(super) const BROKEN: u32 = libc::EPOLLERR as u32 | libc::EPOLLHUP as u32;

pub(super) struct Poller {
    epoll: OwnedFd,
    /// Foreign threads wake the worker by it. It stays armed.
    wake_fd: RawFd,
    events: Box<[libc::epoll_event]>,
    /// `epoll_pwait2` (Linux 5.11) is there, and no filter hides it.
    waits_precisely: bool,
}

/// What the kernel says of one descriptor.
pub(super) struct Event {
    pub(super) fd: RawFd,
    pub(super) events: u32,
}

impl Poller {
    pub(super) fn new(wake_fd: RawFd) -> io::Result<Poller> {
        // SAFETY: no pointers; the descriptor it returns is new and ours.
        let epoll = unsafe {
            match libc::epoll_create1(libc::EPOLL_CLOEXEC) {
                -1 => return Err(explain(io::Error::last_os_error())),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        let nothing = libc::epoll_event { events: 0, u64: 0 };
        let events = vec![nothing; EVENTS].into();
        let mut poller = Poller { epoll, wake_fd, events, waits_precisely: true };
        poller
            .control(libc::EPOLL_CTL_ADD, wake_fd, IN, WAKE_KEY)
            .map_err(io::Error::from_raw_os_error)?;
        poller.waits_precisely = poller.wait_precisely(Some(Duration::ZERO)) >= 0;
        Ok(poller)
    }

    /// Asks for the next event of these on a descriptor. It is told of it once. An error is an `errno`.
    ///
    /// The kernel forgets a descriptor that is closed, and its number may belong to another file by now. So
    /// the driver does not keep a list of the descriptors that the kernel knows: it asks.
    pub(super) fn arm(&self, fd: RawFd, events: u32) -> Result<(), i32> {
        let events = events | libc::EPOLLONESHOT as u32;
        match self.control(libc::EPOLL_CTL_MOD, fd, events, fd as u64) {
            Err(libc::ENOENT) => self.control(libc::EPOLL_CTL_ADD, fd, events, fd as u64),
            result => result,
        }
    }

    fn control(&self, what: i32, fd: RawFd, events: u32, key: u64) -> Result<(), i32> {
        let mut event = libc::epoll_event { events, u64: key };
        // SAFETY: the kernel reads the structure during the call.
        match unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), what, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(sys::errno()),
        }
    }

    /// Waits for events, for so long at most (`None`: for as long as it takes); how many there are. A
    /// signal ends it.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> usize {
        let count = match (self.waits_precisely, timeout) {
            (true, _) => self.wait_precisely(timeout),
            (false, Some(Duration::ZERO)) => self.wait_roughly(),
            (false, _) => {
                self.sleep(timeout);
                self.wait_roughly()
            }
        };
        if count < 0 && sys::errno() != libc::EINTR {
            broken(sys::errno());
        }
        count.max(0) as usize
    }

    fn wait_precisely(&mut self, timeout: Option<Duration>) -> i32 {
        let spec = timeout.map(sys::timespec);
        let spec = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (events, most) = (self.events.as_mut_ptr(), EVENTS);
        // SAFETY: the kernel writes at most so many events and reads the time, if there is one.
        unsafe {
            let epoll = self.epoll.as_raw_fd();
            libc::syscall(libc::SYS_epoll_pwait2, epoll, events, most, spec, 0, 8) as i32
        }
    }

    fn wait_roughly(&mut self) -> i32 {
        let (epoll, events) = (self.epoll.as_raw_fd(), self.events.as_mut_ptr());
        // SAFETY: the kernel writes at most so many events.
        unsafe { libc::epoll_wait(epoll, events, EVENTS as i32, 0) }
    }

    /// `epoll_wait` counts in milliseconds: a timer would be late.
    fn sleep(&self, timeout: Option<Duration>) {
        let spec = timeout.map(sys::timespec);
        let spec = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let mut poll =
            libc::pollfd { fd: self.epoll.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the structures live through the call. A signal ends it, as it may.
        unsafe { libc::ppoll(&mut poll, 1, spec, std::ptr::null()) };
    }

    /// One of those that [`wait`](Self::wait) has counted; `None` for the wake_fd, which is silent again.
    pub(super) fn event(&self, index: usize) -> Option<Event> {
        let libc::epoll_event { events, u64: key } = self.events[index];
        if key == WAKE_KEY {
            // SAFETY: the wake_fd is open for as long as its worker, whose driver this is.
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
    io::Error::new(e.kind(), text)
}

/// Whoever waits would wait for ever.
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

    /// Whether the kernel has `epoll_pwait2` or not.
    #[test]
    fn both_ways_to_wait_end_by_time_and_by_bell() {
        for waits_precisely in [true, false] {
            let wake_fd = sys::eventfd().unwrap();
            let mut poller = Poller::new(wake_fd.as_raw_fd()).unwrap();
            poller.waits_precisely &= waits_precisely;
            assert_eq!(poller.wait(Some(Duration::ZERO)), 0);
            let begun = Instant::now();
            assert_eq!(poller.wait(Some(Duration::from_micros(2300))), 0);
            assert!(begun.elapsed() >= Duration::from_micros(2300));
            for timeout in [None, Some(Duration::ZERO), Some(Duration::from_secs(3600))] {
                sys::eventfd_signal(wake_fd.as_fd());
                assert_eq!(poller.wait(timeout), 1);
                assert!(poller.event(0).is_none());
                assert_eq!(poller.wait(Some(Duration::ZERO)), 0, "the wake_fd is silent again");
            }
        }
    }

    #[test]
    fn an_event_is_reported_once_for_each_time_it_is_asked_for() {
        let wake_fd = sys::eventfd().unwrap();
        let mut poller = Poller::new(wake_fd.as_raw_fd()).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let fd = reader.as_raw_fd();
        std::io::Write::write_all(&mut &writer, &[7]).unwrap();
        for _ in 0..2 {
            poller.arm(fd, IN).unwrap();
            assert_eq!(poller.wait(None), 1);
            let told = poller.event(0).unwrap();
            assert_eq!((told.fd, told.events), (fd, IN));
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
