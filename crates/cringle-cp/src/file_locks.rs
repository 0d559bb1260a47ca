//! Serialises threads that read and write the same file.
//!
//! Two names of a target may be one file: hard links, or links to it. Two threads that wrote to it
//! together would mix two sources; one after the other, the content of the last one remains, as
//! with a single thread. A source may be a file of the target, too: a thread that read it while
//! another thread writes it would copy a part.
//!
//! A thread that writes to an existing file in place holds its [`WriteLock`]; no other thread reads
//! or writes that file meanwhile. Such files are few. Readers and creators of new files only
//! publish their open file in the slot of their worker ([`ReadLock`], [`NewFileLock`]), which costs
//! a store and the load of a counter. A thread that wants a write lock examines the slots.
//!
//! No deadlock: a thread that waits for a write lock holds nothing. It gets the lock only when its
//! source is neither being written nor being created. So the holder of a write lock can later wait
//! only for a writer that got its lock after it, never for a creator. A creator of a new file
//! opened its source before; it waits for a writer, or for a creator that began earlier. Every
//! chain of waiting threads therefore moves from creators to earlier creators, then to writers,
//! then to later writers, and ends.

use crate::sys;
use crate::workers::lock;
use std::collections::HashSet;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

type Id = (u64, u64);

/// Returns the identity of a block device, whatever its names are. No file system has this number.
pub(crate) fn device_id(number: u64) -> Id {
    (u64::MAX, number)
}

/// The state of a slot without a file, and of one whose file is about to be opened.
const NONE: i32 = -1;
const UNOPENED: i32 = -2;

/// The files that one worker has open.
struct Slot {
    making: AtomicI32,
    reading: AtomicI32,
}

/// The locks of one copy.
pub(crate) struct FileLocks {
    /// The files that are written in place.
    written: Mutex<HashSet<Id>>,
    freed: Condvar,
    slots: Vec<Slot>,
    /// The number of waiting workers.
    waiting: AtomicUsize,
    /// The number of workers that hold a write lock or wait for one.
    writers: AtomicUsize,
    /// The number of write locks that have been released.
    released: AtomicU64,
}

/// The right to write to one existing file.
pub(crate) struct WriteLock {
    locks: Arc<FileLocks>,
    file: Id,
}

/// The new file of one worker.
pub(crate) struct NewFileLock {
    locks: Arc<FileLocks>,
    worker: usize,
}

/// The source of one worker.
pub(crate) struct ReadLock {
    locks: Arc<FileLocks>,
    worker: usize,
}

impl NewFileLock {
    /// Publishes the new file, once it is open.
    pub(crate) fn opened(&self, file: RawFd) {
        self.locks.set(&self.locks.slots[self.worker].making, file);
    }
}

impl Drop for NewFileLock {
    fn drop(&mut self) {
        self.locks.set(&self.locks.slots[self.worker].making, NONE);
    }
}

impl Drop for ReadLock {
    fn drop(&mut self) {
        self.locks.set(&self.locks.slots[self.worker].reading, NONE);
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        self.locks.released.fetch_add(1, SeqCst);
        self.locks.writers.fetch_sub(1, SeqCst);
        self.locks.lock().remove(&self.file);
        self.locks.freed.notify_all();
    }
}

impl FileLocks {
    pub(crate) fn new(workers: usize) -> FileLocks {
        let slot = |_| Slot { making: AtomicI32::new(NONE), reading: AtomicI32::new(NONE) };
        FileLocks {
            written: Mutex::default(),
            freed: Condvar::new(),
            slots: (0..workers).map(slot).collect(),
            waiting: AtomicUsize::new(0),
            writers: AtomicUsize::new(0),
            released: AtomicU64::new(0),
        }
    }

    /// Announces that this worker creates a file.
    pub(crate) fn new_file(self: &Arc<FileLocks>, worker: usize) -> NewFileLock {
        self.slots[worker].making.store(UNOPENED, SeqCst);
        NewFileLock { locks: Arc::clone(self), worker }
    }

    /// Returns the number of released write locks. While it stays the same, no file has been
    /// written in place.
    pub(crate) fn released(&self) -> u64 {
        self.released.load(SeqCst)
    }

    /// Keeps other workers from writing to `source`, an open file.
    ///
    /// Also returns whether the source's status, known since the `released`th release, may be out
    /// of date. `is_new`: another worker may be creating the file.
    pub(crate) fn read(
        self: &Arc<FileLocks>,
        worker: usize,
        (source, id): (RawFd, Id),
        released: u64,
        is_new: bool,
    ) -> (ReadLock, bool) {
        let slot = &self.slots[worker].reading;
        let reading = ReadLock { locks: Arc::clone(self), worker };
        // A writer increments `writers` and then loads the slots; this reader stores its slot and
        // then loads `writers`. One of the two sees the other. A release increments `released`
        // before it decrements `writers`: a reader that finds no writer sees its release.
        slot.store(source, SeqCst);
        if self.writers.load(SeqCst) == 0 && self.released() == released && !is_new {
            return (reading, false);
        }
        self.set(slot, NONE);
        let is_blocked = |written: &HashSet<Id>| {
            written.contains(&id) || is_new && self.is_being_made(id, worker)
        };
        let _written = self.wait_while(is_blocked);
        slot.store(source, SeqCst);
        (reading, true)
    }

    /// Waits until no other worker reads, writes or creates `file`, or writes or creates this
    /// worker's source.
    pub(crate) fn write(
        self: &Arc<FileLocks>,
        worker: usize,
        source: Option<Id>,
        file: Id,
    ) -> WriteLock {
        self.writers.fetch_add(1, SeqCst);
        let is_blocked = |written: &HashSet<Id>| {
            written.contains(&file)
                || source.is_some_and(|source| {
                    written.contains(&source) || self.is_being_made(source, worker)
                })
                || self.is_being_made(file, worker)
                || self.is_being_read(file, worker)
        };
        self.wait_while(is_blocked).insert(file);
        WriteLock { locks: Arc::clone(self), file }
    }

    fn wait_while(&self, is_blocked: impl Fn(&HashSet<Id>) -> bool) -> MutexGuard<'_, HashSet<Id>> {
        let mut written = self.lock();
        self.waiting.fetch_add(1, SeqCst);
        while is_blocked(&written) {
            written = self.freed.wait(written).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.fetch_sub(1, SeqCst);
        written
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Id>> {
        lock(&self.written)
    }

    fn set(&self, slot: &AtomicI32, state: i32) {
        // A waiter increments `waiting` and then loads the slots, under the lock; this thread
        // stores a slot and then loads `waiting`. One of the two sees the other; the lock is free
        // once the waiter sleeps.
        slot.store(state, SeqCst);
        if self.waiting.load(SeqCst) > 0 {
            drop(self.lock());
            self.freed.notify_all();
        }
    }

    fn is_being_made(&self, file: Id, except: usize) -> bool {
        self.others(except).any(|slot| holds(slot.making.load(SeqCst), file))
    }

    fn is_being_read(&self, file: Id, except: usize) -> bool {
        self.others(except).any(|slot| holds(slot.reading.load(SeqCst), file))
    }

    fn others(&self, except: usize) -> impl Iterator<Item = &Slot> {
        self.slots
            .iter()
            .enumerate()
            .filter(move |(index, _)| *index != except)
            .map(|(_, slot)| slot)
    }
}

/// Returns whether a slot has this file, or a file that is not open yet. A descriptor that was
/// closed and reused may match another file for a moment; its slot is about to change, which wakes
/// the waiter.
fn holds(slot: i32, file: Id) -> bool {
    match slot {
        NONE => false,
        UNOPENED => true,
        fd => sys::id_of_number(fd) == Some(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    fn files<const N: usize>() -> [(File, Id); N] {
        let place = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        std::array::from_fn(|number| {
            let file = File::create(place.path().join(number.to_string()));
            let file = file.unwrap_or_else(|e| panic!("{e}"));
            let id = sys::stat_of(&file).map(|stat| sys::id(&stat));
            (file, id.unwrap_or_else(|e| panic!("{e}")))
        })
    }

    /// Runs `blocked` on a thread until it waits, then drops `holder` and expects it to finish.
    fn waits_for<T>(locks: &FileLocks, holder: T, blocked: impl FnOnce() + Send) {
        let done = AtomicI32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                blocked();
                done.store(1, SeqCst);
            });
            while locks.waiting.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            assert_eq!(done.load(SeqCst), 0);
            drop(holder);
        });
        assert_eq!(done.load(SeqCst), 1);
    }

    #[test]
    fn a_writer_waits_for_the_creator_of_its_file() {
        let [(made, made_id), (_, other_id)] = files();
        let locks = Arc::new(FileLocks::new(3));
        let new_file = locks.new_file(0);
        new_file.opened(made.as_raw_fd());
        // A lock on another file is free.
        drop(locks.write(1, None, other_id));
        waits_for(&locks, new_file, || drop(locks.write(1, None, made_id)));
    }

    /// The creator may wait for the file that the writer has locked.
    #[test]
    fn a_writer_waits_for_the_creator_of_its_source() {
        let [(source, source_id), (_, target_id)] = files();
        let locks = Arc::new(FileLocks::new(2));
        let new_file = locks.new_file(0);
        new_file.opened(source.as_raw_fd());
        waits_for(&locks, new_file, || drop(locks.write(1, Some(source_id), target_id)));
    }

    #[test]
    fn readers_and_writers_wait_for_each_other() {
        let [(source, id), (other, other_id)] = files();
        let locks = Arc::new(FileLocks::new(2));
        let (reading, stale) = locks.read(0, (source.as_raw_fd(), id), locks.released(), false);
        assert!(!stale);
        waits_for(&locks, reading, || drop(locks.write(1, None, id)));
        let turn = locks.write(0, None, id);
        let before = locks.released();
        // The source is another file, but may have been written meanwhile.
        let another = locks.read(1, (other.as_raw_fd(), other_id), before, false);
        assert!(another.1);
        drop(another);
        waits_for(&locks, turn, || {
            assert!(locks.read(1, (source.as_raw_fd(), id), before, false).1);
        });
        assert!(!locks.read(1, (source.as_raw_fd(), id), locks.released(), false).1);
        assert!(locks.read(1, (source.as_raw_fd(), id), before, false).1);
    }

    /// Each thread writes the file that the other one reads.
    #[test]
    fn files_copied_onto_each_other_do_not_deadlock() {
        let [(_, one), (_, other)] = files();
        let locks = Arc::new(FileLocks::new(2));
        std::thread::scope(|scope| {
            for (worker, source, file) in [(0, one, other), (1, other, one)] {
                let locks = &locks;
                scope.spawn(move || {
                    for _ in 0..1000 {
                        drop(locks.write(worker, Some(source), file));
                    }
                });
            }
        });
        assert_eq!(locks.released(), 2000);
    }
}
