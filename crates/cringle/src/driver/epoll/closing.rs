//! Descriptors that the program closes while ops wait for them.
//!
//! A thread that waits in a call holds its file open: another thread may close the descriptor, or
//! put another file in its place, and the call still receives what arrives later. An epoll instance
//! holds nothing: the kernel drops the registration, and no event arrives. So a program whose calls
//! of libc are interposed announces each close by [`closing`]. If ops wait for the number, the file
//! is duplicated first, and the ops continue on the duplicate, which is closed after the last one.
//!
//! A *generation* of each number tells the ops of the old file from the ops of the next file:
//!
//! 1. An op that begins to wait [watches](Watch) its number: it counts itself, and reads the
//!    generation, in one step.
//! 2. A thread that is about to close a watched number duplicates the file, starts the next
//!    generation, and posts the duplicate to all drivers: under one lock.
//! 3. Before a driver attempts an op again, it *pins* the number and compares the generations. The
//!    closing thread waits until no attempt pins the number; so no attempt reaches the next file.
//!    A driver that finds a later generation waits for the lock of step 2, and then has the
//!    duplicate.
//!
//! An op that begins to wait between step 2 and the close is counted. The closing thread looks at
//! the count once more when the number is closed, and has the drivers arm the number again, which
//! fails: the op fails as if it had begun after the close.
//!
//! The last driver closes the duplicate, on its worker. If the duplicate is the last hold of the
//! file, the close may wait, as for a socket that lingers. That occurs only for an interposed
//! `poll`: the other interposed calls have a duplicate of their own, which their fiber closes
//! later.

use super::offload::Results;
use crate::sys::fork::ForkLock;
use crate::sys::{self, Owned, syscall};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Numbers that are equal modulo this share a word. That costs time, and changes no result.
const WORDS: usize = 1 << 14;
/// Pins of attempts that a closing thread waits for, by yielding at most this often: a signal
/// handler that closes may have interrupted the attempt itself.
const MOST_YIELDS: usize = 1000;

/// One of the watches in a word, which are the lowest 24 bits.
const WATCH: u64 = 1;
/// One of the pins in a word, 16 bits.
const PIN: u64 = 1 << 24;
/// A step of the generation, the highest 24 bits.
const GENERATION: u64 = 1 << 40;

/// For each number: the ops that watch it, the attempts that pin it, and its generation.
static STATES: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// The drivers of this process, in which ops may wait.
static DRIVERS: ForkLock<Vec<Registered>> = ForkLock::new(Vec::new());
/// Their number. It spares a closing thread all else.
static DRIVER_COUNT: AtomicU32 = AtomicU32::new(0);
/// How often the process, or an ancestor, was forked after a driver was made. The drivers of the
/// parent are none of the child's.
static FORKS: AtomicU32 = AtomicU32::new(0);

struct Registered {
    results: Arc<Results>,
    forks: u32,
}

/// What the program has done with a number.
pub(super) enum Closed {
    /// It closes the number. The waits of this generation, or of one before, continue on the
    /// duplicate, or fail if there is none.
    Moved { fd: RawFd, generation: u32, file: Option<Arc<Owned>> },
    /// It has closed the number, or has put another file in its place.
    Replaced { fd: RawFd },
}

fn state(fd: RawFd) -> &'static AtomicU64 {
    &STATES[fd as u32 as usize % WORDS]
}

fn watches(state: u64) -> u64 {
    state % PIN
}

fn pins(state: u64) -> u64 {
    state % GENERATION / PIN
}

fn generation(state: u64) -> u32 {
    (state / GENERATION) as u32
}

pub(super) fn add_driver(results: &Arc<Results>) {
    let registered =
        Registered { results: Arc::clone(results), forks: FORKS.load(Ordering::Relaxed) };
    DRIVERS.lock().push(registered);
    DRIVER_COUNT.fetch_add(1, Ordering::SeqCst);
}

/// Afterwards nothing is posted to the driver.
pub(super) fn remove_driver(results: &Arc<Results>) {
    DRIVER_COUNT.fetch_sub(1, Ordering::SeqCst);
    DRIVERS.lock().retain(|one| !Arc::ptr_eq(&one.results, results));
}

/// Waits until a thread that has started the next generation of a number has posted it.
pub(super) fn await_posts() {
    drop(DRIVERS.lock());
}

/// Leaves the parent's drivers to the parent, in a forked child.
pub(crate) fn forget_drivers() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    DRIVER_COUNT.store(0, Ordering::SeqCst);
}

/// An op's watch of the number that it waits for.
pub(super) struct Watch {
    fd: RawFd,
    generation: u32,
}

/// An attempt at an op whose number still refers to its file. It ends before the file is closed.
pub(super) struct Pin(RawFd);

impl Watch {
    pub(super) fn new(fd: RawFd) -> Watch {
        let before = state(fd).fetch_add(WATCH, Ordering::SeqCst);
        debug_assert!(watches(before) < PIN - 1, "too many ops wait for one descriptor");
        Watch { fd, generation: generation(before) }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd
    }

    /// The error is the number's generation, if it is a later one.
    pub(super) fn pin(&self) -> Result<Pin, u32> {
        let before = state(self.fd).fetch_add(PIN, Ordering::SeqCst);
        let (pin, generation) = (Pin(self.fd), generation(before));
        if generation == self.generation { Ok(pin) } else { Err(generation) }
    }

    /// Whether the op has waited for this number since this generation or an earlier one.
    pub(super) fn is_of(&self, fd: RawFd, generation: u32) -> bool {
        let steps = generation.wrapping_sub(self.generation) % (1 << 24);
        self.fd == fd && steps < 1 << 23
    }

    /// Continues in this generation: the number that was closed is another one, which shares the
    /// word.
    pub(super) fn renew(&mut self, generation: u32) {
        self.generation = generation;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        state(self.fd).fetch_sub(WATCH, Ordering::SeqCst);
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        state(self.0).fetch_sub(PIN, Ordering::SeqCst);
    }
}

/// Calls `close`, which closes a descriptor or puts another file in its place. Ops that wait for
/// the file continue to.
#[inline]
pub(crate) fn closing<T>(fd: RawFd, close: impl FnOnce() -> T) -> T {
    if DRIVER_COUNT.load(Ordering::SeqCst) == 0 {
        return close();
    }
    if watches(state(fd).load(Ordering::SeqCst)) > 0 {
        keep_open(fd);
    }
    let result = close();
    after_close(fd);
    result
}

/// [`closing`] for all numbers of a range.
pub(crate) fn closing_range<T>(first: u32, last: u32, close: impl FnOnce() -> T) -> T {
    /// No table of descriptors is larger (`fs.nr_open`, by default 2²⁰).
    const MOST: u32 = 1 << 22;
    if DRIVER_COUNT.load(Ordering::SeqCst) == 0 {
        return close();
    }
    let for_watched = |f: fn(RawFd)| {
        let is_watched = |word: &u32| watches(STATES[*word as usize].load(Ordering::SeqCst)) > 0;
        for word in (0..WORDS as u32).filter(is_watched) {
            let numbers = (word..=last.min(MOST)).step_by(WORDS);
            numbers.filter(|&number| number >= first).for_each(|number| f(number as RawFd));
        }
    };
    for_watched(keep_open);
    let result = close();
    for_watched(after_close);
    result
}

/// Posts a duplicate of the file to the drivers, and starts the next generation of the number.
#[cold]
fn keep_open(fd: RawFd) {
    let drivers = DRIVERS.lock();
    let file = match sys::duplicate(fd) {
        // It is not open. Its watches belong to another number.
        Err(e) if e.raw_os_error() == Some(libc::EBADF) => return,
        // Without a number for the duplicate, the ops fail. They must not wait for ever.
        result => result.ok().map(Arc::new),
    };
    let state = state(fd);
    let generation = generation(state.fetch_add(GENERATION, Ordering::SeqCst));
    let is_pinned = || pins(state.load(Ordering::SeqCst)) > 0;
    for _ in 0..MOST_YIELDS {
        if !is_pinned() {
            break;
        }
        // SAFETY: no pointers.
        unsafe { syscall!(SYS_sched_yield) };
    }
    post(&drivers, || Closed::Moved { fd, generation, file: file.clone() });
}

/// Has the drivers look again at a number that ops have begun to wait for while it was closed.
fn after_close(fd: RawFd) {
    // An op counts itself, and then has the kernel look at the number. Here the order is reversed,
    // so one of the two sees the other.
    fence(Ordering::SeqCst);
    if watches(state(fd).load(Ordering::SeqCst)) > 0 {
        post(&DRIVERS.lock(), || Closed::Replaced { fd });
    }
}

fn post(drivers: &[Registered], closed: impl Fn() -> Closed) {
    let forks = FORKS.load(Ordering::Relaxed);
    for driver in drivers.iter().filter(|driver| driver.forks == forks) {
        driver.results.post_closed(closed());
    }
}
