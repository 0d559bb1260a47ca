//! Who reads and who writes a file, where two threads may meet at one.
//!
//! Two names of a target may be one file: hard links, or links to it. Two threads that wrote to it at once would
//! leave a mixture of two sources; in turn, the last one's content stays, as with one thread. A source may be a
//! file of the target, too. A thread that read it while another writes it would take a part for the whole.
//!
//! Whoever writes to an existing file in place takes its [`Turn`], alone, and nobody reads that file meanwhile. Such
//! files are few. All others, readers and makers of new files, only note in a slot of their worker what they have
//! open ([`Making`], [`Reading`]): a store, and a look at a counter. Who takes a turn looks at the slots.
//!
//! Nobody waits who holds something that another waits for: a turn and the right to read its source are taken
//! together; a reader that waits is in no slot as one; a maker waits for writers and for makers who began before.

use crate::sys;
use std::collections::HashSet;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

type Id = (u64, u64);

/// By which a block device is known, whatever names it has. (No file system has this number.)
pub(crate) fn device_id(number: u64) -> Id {
    (u64::MAX, number)
}

/// In a slot: no file, or one that has no descriptor yet.
const NONE: i32 = -1;
const UNOPENED: i32 = -2;

/// What one worker has open.
struct Slot {
    making: AtomicI32,
    reading: AtomicI32,
}

pub(crate) struct FileLocks {
    /// Files that are written in place.
    written: Mutex<HashSet<Id>>,
    freed: Condvar,
    slots: Vec<Slot>,
    /// Workers that wait.
    waiting: AtomicUsize,
    /// Those that have a turn, or wait for one.
    writers: AtomicUsize,
    /// Turns that have released.
    released: AtomicU64,
}

/// The right to write to one existing file, until it is dropped.
pub(crate) struct WriteLock {
    locks: Arc<FileLocks>,
    file: Id,
}

/// A new file of one worker, until it is dropped.
pub(crate) struct NewFileLock {
    locks: Arc<FileLocks>,
    worker: usize,
}

/// The source of one worker, until it is dropped.
pub(crate) struct ReadLock {
    locks: Arc<FileLocks>,
    worker: usize,
}

impl NewFileLock {
    /// The file has been made.
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

    /// Before this worker makes a new file.
    pub(crate) fn new_file(self: &Arc<FileLocks>, worker: usize) -> NewFileLock {
        self.slots[worker].making.store(UNOPENED, SeqCst);
        NewFileLock { locks: Arc::clone(self), worker }
    }

    /// How many locks have released: what is known of a source by then may have changed when there are more.
    pub(crate) fn released(&self) -> u64 {
        self.released.load(SeqCst)
    }

    /// From now on this worker reads `source`, an open file, and nobody writes to it. Also returns whether what is
    /// known of it since `released` may be old. `is_new`: it may be a file that another worker makes.
    pub(crate) fn read(
        self: &Arc<FileLocks>,
        worker: usize,
        (source, id): (RawFd, Id),
        released: u64,
        is_new: bool,
    ) -> (ReadLock, bool) {
        let slot = &self.slots[worker].reading;
        let reading = ReadLock { locks: Arc::clone(self), worker };
        // Who takes a turn counts itself and then looks at the slots: one of the two sees the other.
        slot.store(source, SeqCst);
        if self.writers.load(SeqCst) == 0 && self.released() == released && !is_new {
            return (reading, false);
        }
        self.set(slot, NONE);
        let is_blocked = |written: &HashSet<Id>| {
            written.contains(&id) || is_new && self.is_being_made(id, worker)
        };
        let _busy = self.wait_while(is_blocked);
        slot.store(source, SeqCst);
        (reading, true)
    }

    /// Waits until nobody else reads or writes `file`, or writes this worker's source.
    pub(crate) fn write(
        self: &Arc<FileLocks>,
        worker: usize,
        source: Option<Id>,
        file: Id,
    ) -> WriteLock {
        self.writers.fetch_add(1, SeqCst);
        let is_blocked = |written: &HashSet<Id>| {
            written.contains(&file)
                || source.is_some_and(|source| written.contains(&source))
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
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, slot: &AtomicI32, state: i32) {
        // Who waits counts itself and then looks at the slots: one of the two sees the other.
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

/// Whether a slot has this file, or one that is not known yet. (A descriptor that was closed meanwhile is another
/// file's or none's: then its slot changes as well.)
fn holds(slot: i32, file: Id) -> bool {
    match slot {
        NONE => false,
        UNOPENED => true,
        fd => sys::stat_of(fd).is_ok_and(|stat| sys::id(&stat) == file),
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
            let id = sys::stat_of(file.as_raw_fd()).map(|stat| sys::id(&stat));
            (file, id.unwrap_or_else(|e| panic!("{e}")))
        })
    }

    /// Runs `blocked` on a thread, sees that it waits, then lets it go on by dropping `holder`.
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
    fn a_turn_waits_for_the_one_who_makes_the_file() {
        let [(made, made_id), (_, other_id)] = files();
        let locks = Arc::new(FileLocks::new(3));
        let making = locks.new_file(0);
        making.opened(made.as_raw_fd());
        // Another file's turn waits for nobody.
        drop(locks.write(1, None, other_id));
        waits_for(&locks, making, || drop(locks.write(1, None, made_id)));
    }

    #[test]
    fn readers_and_the_writer_of_a_file_wait_for_each_other() {
        let [(source, id), (other, other_id)] = files();
        let locks = Arc::new(FileLocks::new(2));
        let (reading, stale) = locks.read(0, (source.as_raw_fd(), id), locks.released(), false);
        assert!(!stale);
        waits_for(&locks, reading, || drop(locks.write(1, None, id)));
        let turn = locks.write(0, None, id);
        let before = locks.released();
        // Of another file it is only not known whether it is as it was.
        let another = locks.read(1, (other.as_raw_fd(), other_id), before, false);
        assert!(another.1);
        drop(another);
        waits_for(&locks, turn, || {
            assert!(locks.read(1, (source.as_raw_fd(), id), before, false).1);
        });
        assert!(!locks.read(1, (source.as_raw_fd(), id), locks.released(), false).1);
        assert!(locks.read(1, (source.as_raw_fd(), id), before, false).1);
    }

    /// Each writes what the other reads: one after the other.
    #[test]
    fn two_files_that_are_copied_onto_each_other_do_not_wait_for_ever() {
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
