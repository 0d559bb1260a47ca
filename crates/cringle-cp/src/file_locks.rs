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
pub(crate) fn device(number: u64) -> Id {
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

pub(crate) struct Turns {
    /// Files that are written in place.
    busy: Mutex<HashSet<Id>>,
    freed: Condvar,
    slots: Vec<Slot>,
    /// Workers that wait.
    waiting: AtomicUsize,
    /// Those that have a turn, or wait for one.
    writers: AtomicUsize,
    /// Turns that have ended.
    ended: AtomicU64,
}

/// The right to write to one existing file, until it is dropped.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    file: Id,
}

/// A new file of one worker, until it is dropped.
pub(crate) struct Making {
    turns: Arc<Turns>,
    worker: usize,
}

/// The source of one worker, until it is dropped.
pub(crate) struct Reading {
    turns: Arc<Turns>,
    worker: usize,
}

impl Making {
    /// The file has been made.
    pub(crate) fn opened(&self, file: RawFd) {
        self.turns.set(&self.turns.slots[self.worker].making, file);
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.turns.set(&self.turns.slots[self.worker].making, NONE);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.turns.set(&self.turns.slots[self.worker].reading, NONE);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.ended.fetch_add(1, SeqCst);
        self.turns.writers.fetch_sub(1, SeqCst);
        self.turns.lock().remove(&self.file);
        self.turns.freed.notify_all();
    }
}

impl Turns {
    pub(crate) fn new(workers: usize) -> Turns {
        let slot = |_| Slot { making: AtomicI32::new(NONE), reading: AtomicI32::new(NONE) };
        Turns {
            busy: Mutex::default(),
            freed: Condvar::new(),
            slots: (0..workers).map(slot).collect(),
            waiting: AtomicUsize::new(0),
            writers: AtomicUsize::new(0),
            ended: AtomicU64::new(0),
        }
    }

    /// Before this worker makes a new file.
    pub(crate) fn making(self: &Arc<Turns>, worker: usize) -> Making {
        self.slots[worker].making.store(UNOPENED, SeqCst);
        Making { turns: Arc::clone(self), worker }
    }

    /// How many turns have ended: what is known of a source by then may have changed when there are more.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(SeqCst)
    }

    /// From now on this worker reads `source`, an open file, and nobody writes to it. Also returns whether what is
    /// known of it since `ended` may be old. `is_new`: it may be a file that another worker makes.
    pub(crate) fn read(
        self: &Arc<Turns>,
        worker: usize,
        (source, id): (RawFd, Id),
        ended: u64,
        is_new: bool,
    ) -> (Reading, bool) {
        let slot = &self.slots[worker].reading;
        let reading = Reading { turns: Arc::clone(self), worker };
        // Who takes a turn counts itself and then looks at the slots: one of the two sees the other.
        slot.store(source, SeqCst);
        if self.writers.load(SeqCst) == 0 && self.ended() == ended && !is_new {
            return (reading, false);
        }
        self.set(slot, NONE);
        let may_not = |busy: &HashSet<Id>| busy.contains(&id) || is_new && self.is_made(id, worker);
        let _busy = self.wait_while(may_not);
        slot.store(source, SeqCst);
        (reading, true)
    }

    /// Waits until nobody else reads or writes `file`, or writes this worker's source.
    pub(crate) fn take(self: &Arc<Turns>, worker: usize, source: Option<Id>, file: Id) -> Turn {
        self.writers.fetch_add(1, SeqCst);
        let may_not = |busy: &HashSet<Id>| {
            busy.contains(&file)
                || source.is_some_and(|source| busy.contains(&source))
                || self.is_made(file, worker)
                || self.is_read(file, worker)
        };
        self.wait_while(may_not).insert(file);
        Turn { turns: Arc::clone(self), file }
    }

    fn wait_while(&self, may_not: impl Fn(&HashSet<Id>) -> bool) -> MutexGuard<'_, HashSet<Id>> {
        let mut busy = self.lock();
        self.waiting.fetch_add(1, SeqCst);
        while may_not(&busy) {
            busy = self.freed.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.fetch_sub(1, SeqCst);
        busy
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Id>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, slot: &AtomicI32, state: i32) {
        // Who waits counts itself and then looks at the slots: one of the two sees the other.
        slot.store(state, SeqCst);
        if self.waiting.load(SeqCst) > 0 {
            drop(self.lock());
            self.freed.notify_all();
        }
    }

    fn is_made(&self, file: Id, but: usize) -> bool {
        self.others(but).any(|slot| is(slot.making.load(SeqCst), file))
    }

    fn is_read(&self, file: Id, but: usize) -> bool {
        self.others(but).any(|slot| is(slot.reading.load(SeqCst), file))
    }

    fn others(&self, but: usize) -> impl Iterator<Item = &Slot> {
        self.slots.iter().enumerate().filter(move |(index, _)| *index != but).map(|(_, slot)| slot)
    }
}

/// Whether a slot has this file, or one that is not known yet. (A descriptor that was closed meanwhile is another
/// file's or none's: then its slot changes as well.)
fn is(slot: i32, file: Id) -> bool {
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
    fn waits_for<T>(turns: &Turns, holder: T, blocked: impl FnOnce() + Send) {
        let done = AtomicI32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                blocked();
                done.store(1, SeqCst);
            });
            while turns.waiting.load(SeqCst) == 0 {
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
        let turns = Arc::new(Turns::new(3));
        let making = turns.making(0);
        making.opened(made.as_raw_fd());
        // Another file's turn waits for nobody.
        drop(turns.take(1, None, other_id));
        waits_for(&turns, making, || drop(turns.take(1, None, made_id)));
    }

    #[test]
    fn readers_and_the_writer_of_a_file_wait_for_each_other() {
        let [(source, id), (other, other_id)] = files();
        let turns = Arc::new(Turns::new(2));
        let (reading, stale) = turns.read(0, (source.as_raw_fd(), id), turns.ended(), false);
        assert!(!stale);
        waits_for(&turns, reading, || drop(turns.take(1, None, id)));
        let turn = turns.take(0, None, id);
        let before = turns.ended();
        // Of another file it is only not known whether it is as it was.
        let another = turns.read(1, (other.as_raw_fd(), other_id), before, false);
        assert!(another.1);
        drop(another);
        waits_for(&turns, turn, || {
            assert!(turns.read(1, (source.as_raw_fd(), id), before, false).1);
        });
        assert!(!turns.read(1, (source.as_raw_fd(), id), turns.ended(), false).1);
        assert!(turns.read(1, (source.as_raw_fd(), id), before, false).1);
    }

    /// Each writes what the other reads: one after the other.
    #[test]
    fn two_files_that_are_copied_onto_each_other_do_not_wait_for_ever() {
        let [(_, one), (_, other)] = files();
        let turns = Arc::new(Turns::new(2));
        std::thread::scope(|scope| {
            for (worker, source, file) in [(0, one, other), (1, other, one)] {
                let turns = &turns;
                scope.spawn(move || {
                    for _ in 0..1000 {
                        drop(turns.take(worker, Some(source), file));
                    }
                });
            }
        });
        assert_eq!(turns.ended(), 2000);
    }
}
