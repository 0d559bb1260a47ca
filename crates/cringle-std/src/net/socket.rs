//! The core of all socket types: std's socket, and the decision how a call on it is performed.
//!
//! | the caller is | the call is |
//! |---|---|
//! | no fiber | std's |
//! | a fiber, and the socket is non-blocking | std's, which fails with `WouldBlock` |
//! | another fiber | an op, with the socket's timeout as a timer |
//!
//! A ring ignores `SO_RCVTIMEO`, `SO_SNDTIMEO` and `O_NONBLOCK`. They belong to the socket, not to
//! the descriptor, so clones share a copy of them ([`Modes`]). For a foreign socket they are looked
//! up once, at its first use; changes that another library makes later are not noticed.

use crate::fiber::op::{perform, perform_within};
use cringle_core::worker::Current;
use cringle_driver::nonblocking;
use cringle_driver::{Op, SocketTransfer, Way, blocking};
use cringle_sys::lock::{Mutex, OnceLock};
use cringle_sys::{self as sys, Owned, plainly};
use socket2::SockRef;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The modes of a foreign socket have not been looked up.
const UNKNOWN: u8 = 0;
/// The socket blocks, has no timeouts, and closing it does not wait.
const SIMPLE: u8 = 1;
/// The modes are in `Socket::modes`.
const SHARED: u8 = 2;

/// A socket of std's type `S`. See the [module](self).
pub(crate) struct Socket<S: AsFd + AsRawFd + Send> {
    std: ManuallyDrop<Owned<S>>,
    state: AtomicU8,
    /// Whether the last read filled its buffer, so that more data is probably available.
    has_more: AtomicBool,
    modes: OnceLock<Arc<Modes>>,
}

/// The modes of a socket that all of its descriptors share.
#[derive(Default)]
struct Modes {
    /// Serialises setters, so that this copy and the kernel's agree. (I6: the system call under it
    /// does not wait.)
    setting: Mutex<()>,
    nonblocking: AtomicBool,
    /// Whether closing the socket waits until the peer has received all data.
    lingers: AtomicBool,
    read_limit: Limit,
    write_limit: Limit,
}

/// A timeout in nanoseconds; 0 means none.
#[derive(Default)]
struct Limit(AtomicU64);

impl Limit {
    fn new(limit: Option<Duration>) -> Limit {
        let new = Limit::default();
        new.set(limit);
        new
    }

    fn set(&self, limit: Option<Duration>) {
        let nanos = limit.map_or(0, |limit| u64::try_from(limit.as_nanos()).unwrap_or(0));
        self.0.store(nanos, Ordering::Relaxed);
    }

    fn get(&self) -> Option<Duration> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }
}

/// The direction of a call, which selects one of the socket's two timeouts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Receive,
    Send,
}

impl<S: AsFd + AsRawFd + Send> Socket<S> {
    /// Wraps a socket whose modes are unknown.
    pub(crate) fn foreign(std: S) -> Socket<S> {
        Socket::new(std, UNKNOWN)
    }

    /// Wraps a new socket, which has the kernel's default modes.
    pub(crate) fn fresh(std: S) -> Socket<S> {
        Socket::new(std, SIMPLE)
    }

    fn new(std: S, state: u8) -> Socket<S> {
        Socket {
            std: ManuallyDrop::new(Owned::new(std)),
            state: state.into(),
            has_more: false.into(),
            modes: OnceLock::new(),
        }
    }

    /// Wraps a connection that this listener has accepted, and which inherits its timeouts.
    pub(super) fn accepted<T: AsFd + AsRawFd + Send>(&self, std: T) -> Socket<T> {
        match self.state.load(Ordering::Relaxed) {
            SIMPLE => Socket::fresh(std),
            _ => Socket::foreign(std),
        }
    }

    #[inline]
    pub(crate) fn std(&self) -> &S {
        &self.std
    }

    #[inline]
    pub(super) fn fd(&self) -> RawFd {
        self.std.as_raw_fd()
    }

    /// Whether the next read will probably find data.
    #[inline(always)]
    pub(super) fn has_more(&self) -> bool {
        self.has_more.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn note_read(&self, filled: bool) {
        if self.has_more() != filled {
            self.has_more.store(filled, Ordering::Relaxed);
        }
    }

    pub(crate) fn into_std(self) -> S {
        let mut this = ManuallyDrop::new(self);
        drop(std::mem::take(&mut this.modes));
        // SAFETY: the contract of `take`: `this` is neither dropped nor used again.
        unsafe { ManuallyDrop::take(&mut this.std) }.into_std()
    }

    /// Wraps a clone of std's socket. Both handles share the modes.
    pub(super) fn clone_with(&self, std: S) -> Socket<S> {
        let clone = Socket::new(std, SHARED);
        let _ = clone.modes.set(Arc::clone(self.modes()));
        self.state.store(SHARED, Ordering::Relaxed);
        clone
    }

    /// Returns the ring and the timeout for a call, or `None` where std's call is right: see the
    /// [module](self). Fails if the fiber is cancelled and std's call would not report it.
    #[inline(always)]
    pub(super) fn ring(&self, direction: Direction) -> io::Result<Option<Ring>> {
        let Some(current) = Current::get() else { return Ok(None) };
        match self.state.load(Ordering::Relaxed) {
            SIMPLE => Ok(Some(Ring { current, limit: None })),
            _ => self.ring_by_modes(current, direction),
        }
    }

    #[cold]
    fn ring_by_modes(&self, current: Current, direction: Direction) -> io::Result<Option<Ring>> {
        if self.state.load(Ordering::Relaxed) == UNKNOWN {
            self.look_up_modes();
        }
        if self.state.load(Ordering::Relaxed) == SIMPLE {
            return Ok(Some(Ring { current, limit: None }));
        }
        let modes = self.modes();
        if modes.nonblocking.load(Ordering::Relaxed) {
            current.admit()?;
            current.spend();
            return Ok(None);
        }
        let limit = match direction {
            Direction::Receive => modes.read_limit.get(),
            Direction::Send => modes.write_limit.get(),
        };
        Ok(Some(Ring { current, limit }))
    }

    fn modes(&self) -> &Arc<Modes> {
        self.modes.get_or_init(|| {
            Arc::new(match self.state.load(Ordering::Relaxed) {
                UNKNOWN => Modes::of(self.std()),
                _ => Modes::default(),
            })
        })
    }

    /// Looks up the modes of a foreign socket. Default modes need no allocation.
    #[cold]
    fn look_up_modes(&self) {
        let state = if Modes::of(self.std()).are_default() {
            SIMPLE
        } else {
            self.modes();
            SHARED
        };
        // Fails if another thread has set a mode or cloned the socket meanwhile.
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.state.compare_exchange(UNKNOWN, state, success, failure);
    }

    /// Sets a mode in the kernel and in the shared copy, as one step.
    fn set(
        &self,
        call: impl FnOnce(&S) -> io::Result<()>,
        note: impl FnOnce(&Modes),
    ) -> io::Result<()> {
        let modes = self.modes();
        let _guard = modes.setting.lock();
        call(&self.std)?;
        note(modes);
        self.state.store(SHARED, Ordering::Relaxed);
        Ok(())
    }

    /// Sets the non-blocking mode by std's `call`.
    pub(super) fn set_nonblocking(
        &self,
        on: bool,
        call: impl FnOnce(&S) -> io::Result<()>,
    ) -> io::Result<()> {
        let call = |std: &S| nonblocking::set(std.as_raw_fd(), on, || call(std));
        self.set(call, |modes| modes.nonblocking.store(on, Ordering::Relaxed))
    }

    pub(super) fn set_timeout(
        &self,
        direction: Direction,
        limit: Option<Duration>,
        call: impl FnOnce(&S) -> io::Result<()>,
    ) -> io::Result<()> {
        self.set(call, |modes| match direction {
            Direction::Receive => modes.read_limit.set(limit),
            Direction::Send => modes.write_limit.set(limit),
        })
    }

    pub(super) fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        let lingers = linger.is_some_and(|linger| !linger.is_zero());
        let call = |std: &S| SockRef::from(std).set_linger(linger);
        self.set(call, |modes| modes.lingers.store(lingers, Ordering::Relaxed))
    }

    /// Calls std's `accept`. With the epoll driver the socket is non-blocking while a fiber waits
    /// to accept (see [`nonblocking`]); then this call polls, for as long as a blocking one would
    /// wait.
    pub(super) fn accept_plainly<T>(&self, accept: impl Fn(&S) -> io::Result<T>) -> io::Result<T> {
        let begun = sys::now();
        loop {
            match plainly(|| accept(&self.std)) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let Some(limit) = self.remaining_wait(begun) else { return Err(e) };
                    sys::wait_for(self.std.as_fd(), libc::POLLIN, limit)?;
                }
                result => return result,
            }
        }
    }

    /// Returns how much longer a plain call that began at `begun` may wait: `Some(None)` without a
    /// limit, `None` not at all.
    #[cold]
    fn remaining_wait(&self, begun: Instant) -> Option<Option<Duration>> {
        let modes = self.modes();
        if modes.nonblocking.load(Ordering::Relaxed) {
            return None;
        }
        match modes.read_limit.get() {
            None => Some(None),
            Some(limit) => limit.checked_sub(sys::now().saturating_duration_since(begun)).map(Some),
        }
    }

    fn lingers(&self) -> bool {
        match self.state.load(Ordering::Relaxed) {
            SIMPLE => false,
            UNKNOWN => Current::get().is_some() && lingers(self.std()),
            _ => self.modes().lingers.load(Ordering::Relaxed),
        }
    }
}

fn lingers(std: &impl AsFd) -> bool {
    // A descriptor that is not a socket fails here, and again when it is used.
    let linger = SockRef::from(std).linger().ok().flatten();
    linger.is_some_and(|linger| !linger.is_zero())
}

impl Modes {
    fn of(std: &impl AsFd) -> Modes {
        let socket = SockRef::from(std);
        Modes {
            setting: Mutex::default(),
            nonblocking: nonblocking::is_set_by_program(std.as_fd().as_raw_fd()).into(),
            lingers: lingers(std).into(),
            read_limit: Limit::new(socket.read_timeout().ok().flatten()),
            write_limit: Limit::new(socket.write_timeout().ok().flatten()),
        }
    }

    fn are_default(&self) -> bool {
        !self.nonblocking.load(Ordering::Relaxed)
            && !self.lingers.load(Ordering::Relaxed)
            && self.read_limit.get().is_none()
            && self.write_limit.get().is_none()
    }
}

/// The worker and fiber to perform an op on, and how long it may wait.
#[derive(Clone, Copy)]
pub(super) struct Ring {
    pub(super) current: Current,
    pub(super) limit: Option<Duration>,
}

impl Ring {
    /// Performs the op. After the time limit, it fails with the kernel's error (`WouldBlock`).
    #[inline(always)]
    pub(super) fn perform(self, op: Op) -> io::Result<usize> {
        match self.limit {
            None => perform(self.current, op),
            Some(limit) => self.perform_within(op, limit),
        }
    }

    /// Performs an op that std retries after a signal.
    pub(super) fn accept(self, op: Op) -> io::Result<usize> {
        loop {
            match self.perform(op) {
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                result => return result,
            }
        }
    }

    #[cold]
    fn perform_within(self, op: Op, limit: Duration) -> io::Result<usize> {
        match perform_within(self.current, op, limit)? {
            Some(count) => Ok(count),
            None if self.current.worker.may_bypass() => try_now(op),
            None => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
        }
    }
}

/// Tries the op once more when the time is up. The driver may not have started it within a short
/// timeout, and data that has arrived is returned nevertheless, as std does.
#[cold]
fn try_now(mut op: Op) -> io::Result<usize> {
    let Op::Socket(transfer) = &mut op else {
        return Err(io::Error::from_raw_os_error(libc::EAGAIN));
    };
    transfer.flags |= libc::MSG_DONTWAIT;
    let SocketTransfer { way, fd, .. } = *transfer;
    // SAFETY: I1. The caller's frame holds what the op points to until this returns.
    let result = unsafe { blocking::perform(&op) };
    if way == Way::Read && result == -libc::EAGAIN && sys::is_shut_for_reading(fd) {
        return Ok(0);
    }
    sys::result_of(result)
}

impl<S: AsFd + AsRawFd + Send> Drop for Socket<S> {
    /// Closes the socket on this thread, as std does. That does not wait, unless the socket
    /// lingers.
    fn drop(&mut self) {
        let lingers = self.lingers();
        // SAFETY: the contract of `take`: nothing uses the socket after its drop.
        let std = unsafe { ManuallyDrop::take(&mut self.std) };
        if lingers {
            crate::fiber::unblock::unblock_or_here(|| drop(std));
        } else {
            drop(std);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn concurrent_setters_agree_with_the_kernel() {
        let ours = Socket::fresh(UdpSocket::bind("127.0.0.1:0").unwrap());
        let theirs = ours.clone_with(ours.std().try_clone().unwrap());
        let others_wait = || theirs.modes().setting.try_lock().is_none();
        std::thread::scope(|s| {
            let call = |std: &UdpSocket| {
                assert!(others_wait(), "the lock is not held at the call");
                std.set_nonblocking(true)
            };
            // Between the call and the note, where a setter without the lock would do both.
            let note = |modes: &Modes| {
                assert!(others_wait(), "the lock is not held at the note");
                s.spawn(|| {
                    theirs.set_nonblocking(false, |std| std.set_nonblocking(false)).unwrap();
                });
                modes.nonblocking.store(true, Ordering::Relaxed);
            };
            ours.set(call, note).unwrap();
        });
        let kernels = SockRef::from(ours.std()).nonblocking().unwrap();
        let known = ours.modes().nonblocking.load(Ordering::Relaxed);
        assert_eq!((kernels, known), (false, false), "the second setter is the last");
    }
}
