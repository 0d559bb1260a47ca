//! The files of waits whose descriptors the program closes.
//!
//! A thread that waits in a call holds its file open: another thread may close the descriptor, or
//! put another file in its place, and the call still receives what arrives later. A fiber's wait
//! refers to its file by the number, also after the wait has begun: an interposed call looks a
//! timeout up and repeats its attempt, and [`epoll`](super::epoll) attempts each op again and arms
//! the number. (A ring holds the files of its ops by itself.) So each such wait enters its number
//! in a table, as a [`KeptFile`]. The promise: a wait that has entered the table uses the file that
//! the number named then, or fails with `EBADF`, whatever the program does with the number later.
//!
//! 1. A thread that is about to close a number in the table, by [`closing`], duplicates the file.
//!    The entries of the number refer to the duplicate from then on, which the last of them closes.
//! 2. The lock of the number's part of the table is held in step 1, and while a wait uses its
//!    number. So no use reaches the next file.
//! 3. The kernel forgets a registration with epoll whose file is closed, and arms only what a
//!    number names. So step 1 posts the number to the drivers whose ops are in the table. They move
//!    these ops to the duplicate.
//!
//! A wait that enters the table between step 1 and the close begins, in effect, after the close. An
//! op may have armed its number before the close. So the closing thread looks at the table once
//! more afterwards, and posts the number again: the driver arms it, which fails, or finds the next
//! file.
//!
//! The program may close all numbers of a range, among them those of duplicates, which are not the
//! program's. So the numbers of all duplicates are listed, and a close of a range leaves them out.
//! It holds the list meanwhile; a duplicate is made under the lock of the list, and is struck out
//! after it is closed. The same holds for the [`Own`] descriptors of the library, such as rings,
//! which the program cannot close one by one either.

use super::epoll::Results;
use cringle_sys::lock::{Mutex, MutexGuard};
use cringle_sys::{self as sys, syscall};
use slab::Slab;
use std::ffi::c_int;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that are equal modulo this share a part of the table.
const PARTS: usize = 256;
/// The pauses of a closing thread for the lock of a part, which a use holds without waiting. If
/// they do not suffice, a signal handler closes, and has interrupted the use itself.
const MOST_PAUSES: usize = 1000;
static PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 20_000 };
/// The number of a file that has none: larger than any open descriptor. Types of descriptors
/// exclude −1.
const NO_NUMBER: RawFd = RawFd::MAX;

type Part = Slab<Entry>;

static TABLE: [Mutex<Part>; PARTS] = [const { Mutex::new(Slab::new()) }; PARTS];
/// The numbers of all duplicates.
static DUPLICATES: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());
/// The library's own numbers.
static OWN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());
/// A bit for each of the [`OWN`] numbers, modulo the number of bits.
static OWN_BITS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// A wait.
struct Entry {
    place: Place,
    /// The driver of an op that has armed the number.
    driver: Option<Arc<Results>>,
}

/// Where a wait finds its file.
enum Place {
    Number(RawFd),
    Duplicate(Arc<Duplicate>),
    /// The process had no number for a duplicate.
    Lost,
}

/// The library's own descriptor of a file whose number the program has closed.
pub struct Duplicate(RawFd);

impl Duplicate {
    fn of(fd: RawFd) -> io::Result<Duplicate> {
        let no_lock = || io::Error::from_raw_os_error(libc::EDEADLK);
        let mut listed = lock_for_close(&DUPLICATES).ok_or_else(no_lock)?;
        let file = Duplicate(sys::duplicate(fd)?.into_fd());
        listed.push(file.0);
        Ok(file)
    }

    /// Closes the file where that may wait, and ignores the error, as a drop does.
    pub fn close_slowly(self) {
        let file = ManuallyDrop::new(self);
        let _ = sys::close_slowly(file.0);
        file.strike_out();
    }

    /// Removes the number once: the next duplicate may have got it since the close.
    fn strike_out(&self) {
        let mut listed = DUPLICATES.lock();
        let at = listed.iter().position(|&fd| fd == self.0);
        at.inspect(|&at| _ = listed.swap_remove(at));
    }
}

#[doc(hidden)]
impl AsRawFd for Duplicate {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Drop for Duplicate {
    fn drop(&mut self) {
        // SAFETY: I9. This value owns the number.
        unsafe { syscall!(SYS_close, self.0) };
        self.strike_out();
    }
}

/// The number of a descriptor of the library, such as a ring: the program cannot close it. Drop
/// this before the descriptor.
pub struct Own(RawFd);

impl Own {
    pub fn new(fd: RawFd) -> Own {
        let mut own = OWN.lock();
        own.push(fd);
        let (word, bit) = own_bit(fd);
        OWN_BITS[word].fetch_or(bit, Ordering::Relaxed);
        Own(fd)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut own = OWN.lock();
        own.retain(|&fd| fd != self.0);
        let (word, bit) = own_bit(self.0);
        if own.iter().all(|&fd| own_bit(fd) != (word, bit)) {
            OWN_BITS[word].fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// The place of a number's bit: a word, and a bit of it.
fn own_bit(fd: RawFd) -> (usize, u64) {
    let at = fd as u32 as usize;
    (at / 64 % OWN_BITS.len(), 1 << (at % 64))
}

/// Whether a number is one of the library's [own](Own).
#[inline]
pub fn is_own(fd: RawFd) -> bool {
    let (word, bit) = own_bit(fd);
    OWN_BITS[word].load(Ordering::Relaxed) & bit != 0 && is_listed(fd)
}

#[cold]
fn is_listed(fd: RawFd) -> bool {
    lock_for_close(&OWN).is_none_or(|own| own.contains(&fd))
}

/// The file of a wait, until [`end`](Self::end) is called.
#[derive(Clone, Copy)]
pub struct KeptFile {
    fd: RawFd,
    key: usize,
}

impl KeptFile {
    pub fn of_call(fd: RawFd) -> KeptFile {
        KeptFile::new(fd, None)
    }

    /// Keeps the file of an op, before its driver arms the number.
    pub(super) fn of_op(fd: RawFd, driver: &Arc<Results>) -> KeptFile {
        KeptFile::new(fd, Some(Arc::clone(driver)))
    }

    fn new(fd: RawFd, driver: Option<Arc<Results>>) -> KeptFile {
        let entry = Entry { place: Place::Number(fd), driver };
        KeptFile { fd, key: part(fd).lock().insert(entry) }
    }

    /// Calls `f` with a number of the file, which stays the file's until `f` returns. `f` only
    /// makes system calls that do not wait. A file without a number has one with which they fail
    /// with `EBADF`.
    pub fn with<T>(self, f: impl FnOnce(RawFd) -> T) -> T {
        let part = part(self.fd).lock();
        let number = self.number_in(&part);
        if number != self.fd {
            // The duplicate stays as long as the entry.
            drop(part);
        }
        f(number)
    }

    /// [`with`](Self::with), if the number is still this one.
    pub(super) fn with_number<T>(self, number: RawFd, f: impl FnOnce() -> T) -> Option<T> {
        self.with(|present| (present == number).then(f))
    }

    /// Returns the number of the file at present.
    pub fn number(self) -> RawFd {
        self.with(|fd| fd)
    }

    fn number_in(self, part: &Part) -> RawFd {
        match part.get(self.key).map(|entry| &entry.place) {
            Some(Place::Number(fd)) => *fd,
            Some(Place::Duplicate(file)) => file.as_raw_fd(),
            // A forked child has forgotten the waits of its parent.
            Some(Place::Lost) | None => NO_NUMBER,
        }
    }

    /// Ends the wait. Returns the duplicate, if no other wait uses it: the caller closes it.
    pub fn end(self) -> Option<Duplicate> {
        let entry = part(self.fd).lock().try_remove(self.key);
        match entry?.place {
            Place::Duplicate(file) => Arc::into_inner(file),
            Place::Number(_) | Place::Lost => None,
        }
    }
}

fn part(fd: RawFd) -> &'static Mutex<Part> {
    &TABLE[fd as u32 as usize % PARTS]
}

/// Calls `close`, which closes a descriptor or puts another file in its place. The waits for the
/// file continue.
pub fn closing<T>(fd: RawFd, close: impl FnOnce() -> T) -> T {
    closing_in(std::slice::from_ref(part(fd)), fd as u32..=fd as u32, close)
}

/// [`closing`] for the numbers of a range, except those of duplicates and the library's own:
/// `close` is called for each part of the range without them, until it does not return 0.
pub fn closing_range(
    numbers: RangeInclusive<u32>,
    mut close: impl FnMut(u32, u32) -> c_int,
) -> c_int {
    let (mut first, last, is_empty) = (*numbers.start(), *numbers.end(), numbers.is_empty());
    closing_in(&TABLE, numbers, || {
        // Held until the numbers are closed.
        let lists = [&OWN, &DUPLICATES].map(lock_for_close);
        let listed = lists.iter().flatten().flat_map(|listed| listed.iter().map(|&fd| fd as u32));
        let mut kept: Vec<u32> = listed.filter(|fd| (first..=last).contains(fd)).collect();
        kept.sort_unstable();
        kept.dedup();
        for number in kept {
            if first < number {
                let result = close(first, number - 1);
                if result != 0 {
                    return result;
                }
            }
            first = number + 1;
        }
        // An empty range may be an error.
        if first <= last || is_empty { close(first, last) } else { 0 }
    })
}

fn closing_in<T>(
    parts: &[Mutex<Part>],
    numbers: RangeInclusive<u32>,
    close: impl FnOnce() -> T,
) -> T {
    // A number occurs for each of its waits.
    let for_waits = |f: fn(&mut Part, RawFd)| {
        for part in parts {
            let Some(mut part) = lock_for_close(part) else { continue };
            let mut found: Vec<RawFd> =
                part.iter().filter_map(|(_, entry)| entry.number()).collect();
            found.retain(|&fd| numbers.contains(&(fd as u32)));
            found.dedup();
            found.into_iter().for_each(|fd| f(&mut part, fd));
        }
    };
    for_waits(keep_open);
    let result = close();
    for_waits(post);
    result
}

fn lock_for_close<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..MOST_PAUSES {
        let guard = mutex.try_lock();
        if guard.is_some() {
            return guard;
        }
        // SAFETY: I14. The kernel only reads the time.
        unsafe { syscall!(SYS_nanosleep, &raw const PAUSE, 0) };
    }
    None
}

impl Entry {
    /// The number, unless the program has closed it.
    fn number(&self) -> Option<RawFd> {
        match self.place {
            Place::Number(fd) => Some(fd),
            Place::Duplicate(_) | Place::Lost => None,
        }
    }
}

/// Has the waits for a number continue with a duplicate.
#[cold]
fn keep_open(part: &mut Part, fd: RawFd) {
    let file = match Duplicate::of(fd) {
        // It is not open: nothing is closed.
        Err(e) if e.raw_os_error() == Some(libc::EBADF) => return,
        result => result.ok().map(Arc::new),
    };
    // The drivers find the duplicate, because they wait for the lock.
    post(part, fd);
    for (_, entry) in part.iter_mut().filter(|(_, entry)| entry.number() == Some(fd)) {
        entry.place = file.clone().map_or(Place::Lost, Place::Duplicate);
    }
}

/// Has the drivers look at the ops that wait for a number.
#[cold]
fn post(part: &mut Part, fd: RawFd) {
    for (_, entry) in part.iter().filter(|(_, entry)| entry.number() == Some(fd)) {
        if let Some(driver) = &entry.driver {
            driver.post_closed(fd);
        }
    }
}

/// Forgets all waits, in a forked child: their fibers are the parent's.
pub fn forget_all() {
    for part in &TABLE {
        // SAFETY: I14. The child has one thread, which has no guard. The part is only overwritten.
        unsafe { part.unlock_in_child() };
        std::mem::forget(std::mem::take(&mut *part.lock()));
    }
    for list in [&OWN, &DUPLICATES] {
        // SAFETY: I14. As above.
        unsafe { list.unlock_in_child() };
        std::mem::forget(std::mem::take(&mut *list.lock()));
    }
    OWN_BITS.iter().for_each(|bits| bits.store(0, Ordering::Relaxed));
}
