//! What all sockets are: std's socket, and whether a call on it is the ring's or the plain one.
//!
//! | who asks | is served by |
//! |---|---|
//! | no fiber | std's call |
//! | a fiber, of a socket that does not block | std's call, which says `WouldBlock` |
//! | any other fiber | the ring; with the timeout that the socket has, by a timer |
//!
//! The ring knows nothing of `SO_RCVTIMEO`, `SO_SNDTIMEO` and `O_NONBLOCK`, which belong to the socket
//! and not to the descriptor: clones share what is known of them. Of a foreign socket they are asked
//! for once, when it is first used. What another library changes after that is not seen.

use crate::driver::nonblocking;
use crate::driver::{Op, blocking};
use crate::fiber::op::{perform, perform_within};
use crate::runtime::fiber::FiberRef;
use crate::runtime::worker::{Here, Worker};
use crate::sys;
use socket2::SockRef;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Nobody has asked yet.
const UNKNOWN: u8 = 0;
/// It blocks, for as long as it takes, and closing it does not wait.
const SIMPLE: u8 = 1;
/// See `modes`.
const SHARED: u8 = 2;

/// See the module.
pub(crate) struct Socket<S: AsFd + AsRawFd + Send> {
    std: ManuallyDrop<S>,
    state: AtomicU8,
    /// The last read filled its buffer, so that there may be more.
    more: AtomicBool,
    modes: OnceLock<Arc<Modes>>,
}

/// What belongs to a socket and not to a descriptor of it.
#[derive(Default)]
struct Modes {
    /// Held while one of them is set, so that of two who do it at once the same one is last for the
    /// kernel and here. (I6: the call under it does not wait.)
    setting: Mutex<()>,
    nonblocking: AtomicBool,
    /// Closing it waits until the peer has everything.
    lingers: AtomicBool,
    read_limit: Limit,
    write_limit: Limit,
}

/// A timeout, in nanoseconds; 0 means none.
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

/// Which of a socket's two timeouts a call has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Receive,
    Send,
}

impl<S: AsFd + AsRawFd + Send> Socket<S> {
    /// One of which nothing is known.
    pub(crate) fn foreign(std: S) -> Socket<S> {
        Socket::new(std, UNKNOWN)
    }

    /// One that was just made, and is as the kernel makes them.
    pub(crate) fn fresh(std: S) -> Socket<S> {
        Socket::new(std, SIMPLE)
    }

    fn new(std: S, state: u8) -> Socket<S> {
        Socket {
            std: ManuallyDrop::new(std),
            state: state.into(),
            more: false.into(),
            modes: OnceLock::new(),
        }
    }

    /// A connection of this listener, whose timeouts it has inherited.
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

    /// Whether the next read will probably find something.
    #[inline(always)]
    pub(super) fn has_more(&self) -> bool {
        self.more.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn note_read(&self, filled: bool) {
        if self.has_more() != filled {
            self.more.store(filled, Ordering::Relaxed);
        }
    }

    pub(crate) fn into_std(self) -> S {
        let mut this = ManuallyDrop::new(self);
        drop(std::mem::take(&mut this.modes));
        // SAFETY: it is taken once: `this` is not dropped, nor used again.
        unsafe { ManuallyDrop::take(&mut this.std) }
    }

    /// Another handle to the same socket, which std's has made.
    pub(super) fn clone_with(&self, std: S) -> Socket<S> {
        let clone = Socket::new(std, SHARED);
        let _ = clone.modes.set(Arc::clone(self.modes()));
        self.state.store(SHARED, Ordering::Relaxed);
        clone
    }

    /// The ring, for a call that may wait so long; `None` where std's call is the right one: see the
    /// module. Fails where the fiber is cancelled, and would not hear of it from std.
    #[inline(always)]
    pub(super) fn ring(&self, direction: Direction) -> io::Result<Option<Ring>> {
        let Some((worker, fiber)) = Worker::current() else { return Ok(None) };
        match self.state.load(Ordering::Relaxed) {
            SIMPLE => Ok(Some(Ring { worker, fiber, limit: None })),
            _ => self.ring_by_modes(worker, fiber, direction),
        }
    }

    #[cold]
    fn ring_by_modes(
        &self,
        worker: Here,
        fiber: FiberRef,
        direction: Direction,
    ) -> io::Result<Option<Ring>> {
        if self.state.load(Ordering::Relaxed) == UNKNOWN {
            self.learn();
        }
        if self.state.load(Ordering::Relaxed) == SIMPLE {
            return Ok(Some(Ring { worker, fiber, limit: None }));
        }
        let modes = self.modes();
        if modes.nonblocking.load(Ordering::Relaxed) {
            return match worker.refuses(fiber) {
                true => Err(fiber.cancel_error()),
                false => {
                    worker.spend(fiber);
                    Ok(None)
                }
            };
        }
        let limit = match direction {
            Direction::Receive => modes.read_limit.get(),
            Direction::Send => modes.write_limit.get(),
        };
        Ok(Some(Ring { worker, fiber, limit }))
    }

    fn modes(&self) -> &Arc<Modes> {
        self.modes.get_or_init(|| {
            Arc::new(match self.state.load(Ordering::Relaxed) {
                UNKNOWN => Modes::of(&*self.std),
                _ => Modes::default(),
            })
        })
    }

    /// Asks what a foreign socket is like. What is simple needs no memory.
    #[cold]
    fn learn(&self) {
        let state = match Modes::of(&*self.std).are_default() {
            true => SIMPLE,
            false => {
                self.modes();
                SHARED
            }
        };
        // Unless somebody has changed or cloned it meanwhile.
        let (now, then) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.state.compare_exchange(UNKNOWN, state, now, then);
    }

    /// Has the kernel set something, and takes note of it: one step.
    fn set(
        &self,
        call: impl FnOnce(&S) -> io::Result<()>,
        note: impl FnOnce(&Modes),
    ) -> io::Result<()> {
        let modes = self.modes();
        let _one_step = modes.setting.lock().expect("no code panics under this lock");
        call(&self.std)?;
        note(modes);
        self.state.store(SHARED, Ordering::Relaxed);
        Ok(())
    }

    /// With std's call of the same name.
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

    /// std's `accept`, where it is the right one. While a fiber waits in one on epoll, the socket does not
    /// block: then this waits for it, for as long as it would have.
    pub(super) fn accept_plainly<T>(&self, accept: impl Fn(&S) -> io::Result<T>) -> io::Result<T> {
        let begun = Instant::now();
        loop {
            match accept(&self.std) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let Some(patience) = self.patience(begun) else { return Err(e) };
                    sys::wait_for(self.std.as_fd(), libc::POLLIN, patience)?;
                }
                result => return result,
            }
        }
    }

    /// How much longer a plain call may wait (`Some(None)`: without a limit) that began then; `None` if it
    /// may not wait.
    #[cold]
    fn patience(&self, begun: Instant) -> Option<Option<Duration>> {
        let modes = self.modes();
        if modes.nonblocking.load(Ordering::Relaxed) {
            return None;
        }
        match modes.read_limit.get() {
            None => Some(None),
            Some(limit) => limit.checked_sub(begun.elapsed()).map(Some),
        }
    }

    fn lingers(&self) -> bool {
        match self.state.load(Ordering::Relaxed) {
            SIMPLE => false,
            UNKNOWN => Worker::current().is_some() && lingers(&*self.std),
            _ => self.modes().lingers.load(Ordering::Relaxed),
        }
    }
}

fn lingers(std: &impl AsFd) -> bool {
    // What is no socket says so when it is used.
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

/// The ring of the calling fiber, and for how long an op may wait there.
#[derive(Clone, Copy)]
pub(super) struct Ring {
    pub(super) worker: Here,
    pub(super) fiber: FiberRef,
    pub(super) limit: Option<Duration>,
}

impl Ring {
    /// What came of the op; where the time is up, the error that the kernel has for it.
    #[inline(always)]
    pub(super) fn perform(self, op: Op) -> io::Result<usize> {
        match self.limit {
            None => perform(self.worker, self.fiber, op),
            Some(limit) => self.perform_within(op, limit),
        }
    }

    /// The same for one that std asks for again after a signal.
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
        match perform_within(self.worker, self.fiber, op, limit)? {
            Some(count) => Ok(count),
            None if self.worker.is_simulated() => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
            None => try_now(op),
        }
    }
}

/// A last try when the time is up: a driver may not have got to the op within a short time, and what is there
/// is received all the same, as std does.
#[cold]
fn try_now(mut op: Op) -> io::Result<usize> {
    match &mut op {
        Op::Recv { flags, .. }
        | Op::Send { flags, .. }
        | Op::RecvMsg { flags, .. }
        | Op::SendMsg { flags, .. } => *flags |= libc::MSG_DONTWAIT,
        _ => return Err(io::Error::from_raw_os_error(libc::EAGAIN)),
    }
    // SAFETY: what the op points to is borrowed by the caller.
    let result = unsafe { blocking::perform(&op) };
    match op {
        Op::Recv { fd, .. } | Op::RecvMsg { fd, .. } if result == -libc::EAGAIN => {
            if sys::is_shut_for_reading(fd) {
                Ok(0)
            } else {
                sys::result_of(result)
            }
        }
        _ => sys::result_of(result),
    }
}

impl<S: AsFd + AsRawFd + Send> Drop for Socket<S> {
    /// Closes it, as std does on this thread: that does not wait, but for a socket that lingers.
    fn drop(&mut self) {
        let lingers = self.lingers();
        // SAFETY: it is taken once: nothing uses it after its drop.
        let std = unsafe { ManuallyDrop::take(&mut self.std) };
        match lingers {
            true => crate::fiber::unblock::unblock_or_here(|| drop(std)),
            false => drop(std),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::sync::atomic::AtomicU32;

    /// Without the lock, a few dozen of them go wrong.
    const ROUNDS: u32 = 20_000;

    /// Whoever is last for the kernel is last for us.
    #[test]
    fn what_two_threads_set_at_once_is_what_is_known_of_it() {
        let ours = Socket::fresh(UdpSocket::bind("127.0.0.1:0").unwrap());
        let theirs = ours.clone_with(ours.std().try_clone().unwrap());
        let mut differ = 0;
        let set = |socket: &Socket<UdpSocket>, on: bool| {
            socket.set_nonblocking(on, |std| std.set_nonblocking(on)).unwrap();
        };
        let (begun, done) = (AtomicU32::new(0), AtomicU32::new(0));
        let await_round = |counter: &AtomicU32, round| {
            while counter.load(Ordering::Acquire) != round {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|s| {
            s.spawn(|| {
                for round in 1..=ROUNDS {
                    await_round(&begun, round);
                    set(&theirs, false);
                    done.store(round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                begun.store(round, Ordering::Release);
                // Sooner and later than the other.
                (0..round % 100).for_each(|_| std::hint::spin_loop());
                set(&ours, true);
                await_round(&done, round);
                let kernels = SockRef::from(ours.std()).nonblocking().unwrap();
                let known = ours.modes().nonblocking.load(Ordering::Relaxed);
                differ += u32::from(known != kernels);
            }
        });
        assert_eq!(differ, 0, "of {ROUNDS}");
    }
}
