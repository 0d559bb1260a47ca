//! The files of calls that wait, while the program closes their descriptors.
//!
//! A thread that waits in a call holds its file open. A call on a fiber may use its number again
//! after the wait, or look a timeout up; by then another thread may have closed the number, or put
//! another file in its place. So such a call enters its number in a table. A thread that is about
//! to close a number which is in the table duplicates the file, and the calls continue with the
//! duplicate. The fiber of the last call closes it, on a thread of the pool where that may wait.
//!
//! The lock of the number's part of the table is held while a call uses the number without
//! waiting, and while the thread that closes marks the calls. So no call uses the next file.

use super::call::{Call, Readiness};
use crate::fiber::unblock::unblock_or_here;
use crate::sys::lock::{Mutex, MutexGuard};
use crate::sys::{self, Owned, syscall};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Numbers that are equal modulo this share a part of the table.
const PARTS: usize = 1024;
/// A signal handler that closes may have interrupted the thread that has the lock.
const MOST_YIELDS: usize = 1000;
/// The longest wait for the readiness of one number. An op that was queued, but not submitted, when
/// the number got another file waits for that file.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Larger than any open descriptor. Types of descriptors exclude −1.
const NO_NUMBER: RawFd = RawFd::MAX;
const CLOSED: isize = -(libc::EBADF as isize);

static TABLE: [Mutex<Part>; PARTS] = [const { Mutex::new(Part::new()) }; PARTS];

struct Part {
    calls: Vec<Entry>,
    next_key: u64,
}

/// A call that holds its file.
struct Entry {
    key: u64,
    fd: RawFd,
    place: Place,
}

/// Where a call finds its file.
enum Place {
    Number,
    Duplicate(Arc<Owned>),
    /// The process had no number for a duplicate.
    Lost,
}

/// A call's hold of its file.
pub(super) struct Held {
    fd: RawFd,
    key: u64,
}

impl Part {
    const fn new() -> Part {
        Part { calls: Vec::new(), next_key: 0 }
    }

    /// Has the calls that use a number continue with a duplicate.
    fn keep_open(&mut self, fd: RawFd) {
        let is_here = |entry: &&mut Entry| entry.fd == fd && matches!(entry.place, Place::Number);
        let mut calls = self.calls.iter_mut().filter(is_here).peekable();
        if calls.peek().is_none() {
            return;
        }
        let file = match sys::duplicate(fd) {
            // It is not open: nothing is closed.
            Err(e) if e.raw_os_error() == Some(libc::EBADF) => return,
            result => result.ok().map(Arc::new),
        };
        for call in calls {
            call.place = file.clone().map_or(Place::Lost, Place::Duplicate);
        }
    }
}

impl Entry {
    fn number(&self) -> RawFd {
        match &self.place {
            Place::Number => self.fd,
            Place::Duplicate(file) => file.as_raw_fd(),
            Place::Lost => NO_NUMBER,
        }
    }
}

fn part(fd: RawFd) -> &'static Mutex<Part> {
    &TABLE[fd as u32 as usize % PARTS]
}

impl Held {
    pub(super) fn new(fd: RawFd) -> Held {
        let mut part = part(fd).lock();
        let key = part.next_key;
        part.next_key += 1;
        part.calls.push(Entry { key, fd, place: Place::Number });
        Held { fd, key }
    }

    /// Calls `f` with a number of the file, which stays the file's until `f` returns. `f` only
    /// makes system calls that do not wait. Without a number it is [`NO_NUMBER`], and they fail
    /// with `EBADF`.
    pub(super) fn with<T>(&self, f: impl FnOnce(RawFd) -> T) -> T {
        let part = part(self.fd).lock();
        let number = part.calls.iter().find(|entry| entry.key == self.key).map(Entry::number);
        let number = number.unwrap_or(NO_NUMBER);
        if number != self.fd {
            // A duplicate stays as long as this value.
            drop(part);
        }
        f(number)
    }

    /// Returns the number of the file at present.
    pub(super) fn number(&self) -> RawFd {
        self.with(|fd| fd)
    }

    /// [`Call::ready`] of the file.
    pub(super) fn ready(&self, call: Call, events: i16, deadline: Option<Instant>) -> Readiness {
        loop {
            let fd = self.number();
            let until = call.now().checked_add(LONGEST_WAIT);
            let until = [deadline, until].into_iter().flatten().min();
            match call.ready(fd, events, until) {
                Readiness::TimedOut if deadline.is_none_or(|at| call.now() < at) => {}
                Readiness::Failed(CLOSED) if self.number() != fd => {}
                readiness => return readiness,
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut part = part(self.fd).lock();
        let place = part.calls.iter().position(|entry| entry.key == self.key);
        let entry = place.map(|place| part.calls.swap_remove(place));
        drop(part);
        // The last call closes the duplicate. Its fiber is still in the call, and may wait.
        if let Some(Entry { place: Place::Duplicate(file), .. }) = entry
            && let Some(file) = Arc::into_inner(file)
            && sys::close_waits(file.as_raw_fd())
        {
            let fd = file.into_fd();
            // As the drop of a descriptor, it ignores the error.
            let _ = unblock_or_here(|| sys::close_slowly(fd));
        }
    }
}

fn lock_for_close(part: &Mutex<Part>) -> Option<MutexGuard<'_, Part>> {
    for _ in 0..MOST_YIELDS {
        let guard = part.try_lock();
        if guard.is_some() {
            return guard;
        }
        // SAFETY: no pointers.
        unsafe { syscall!(SYS_sched_yield) };
    }
    None
}

/// Keeps the file of a number that is about to be closed open for the calls that use it.
pub(super) fn closing(fd: RawFd) {
    if let Some(mut part) = lock_for_close(part(fd)) {
        part.keep_open(fd);
    }
}

/// [`closing`] for all numbers of a range.
pub(super) fn closing_range(first: u32, last: u32) {
    for part in &TABLE {
        let Some(mut part) = lock_for_close(part) else { continue };
        let is_in_range = |fd: &RawFd| (first..=last).contains(&(*fd as u32));
        let numbers: Vec<RawFd> =
            part.calls.iter().map(|entry| entry.fd).filter(is_in_range).collect();
        numbers.into_iter().for_each(|fd| part.keep_open(fd));
    }
}

/// Forgets all calls, in a forked child: their fibers are the parent's.
pub(super) fn forget_all() {
    for part in &TABLE {
        // SAFETY: I14. The child has one thread, which has no guard. The part is only overwritten.
        unsafe { part.unlock_in_child() };
        std::mem::forget(std::mem::replace(&mut *part.lock(), Part::new()));
    }
}
