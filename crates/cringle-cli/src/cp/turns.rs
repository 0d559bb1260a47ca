//! One writer at a time for a file.
//!
//! Two names of a target may be one file: hard links, or links to it. Two threads that wrote to it at once would
//! leave a mixture of two sources; in turn, the last one's content stays, as with one thread.
//!
//! Whoever writes to an existing file takes its turn. Whoever makes a new file cannot meet it by another name
//! but through a link that was there before and led nowhere. New files are many and such links few, so the maker
//! only notes the file in a slot of its own ([`Making`]), and who takes a turn waits until it is in no slot.

use super::sys;
use std::collections::HashSet;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

type Id = (u64, u64);

/// In a slot: no file, or one that has no descriptor yet.
const NONE: i32 = -1;
const UNOPENED: i32 = -2;

/// By which a block device is known, whatever names it has. (No file system has this number.)
pub(super) fn device(number: u64) -> Id {
    (u64::MAX, number)
}

pub(super) struct Turns {
    busy: Mutex<HashSet<Id>>,
    freed: Condvar,
    /// The new file that each worker makes.
    slots: Vec<AtomicI32>,
    /// Workers that wait for a slot.
    waiting: AtomicUsize,
}

/// The right to write to one file, until it is dropped. Whoever has one waits for no other and for no
/// [`Links`](super::links::Links), so every turn ends.
pub(super) struct Turn {
    turns: Arc<Turns>,
    file: Id,
}

/// A new file of one worker, until it is dropped. Whoever has one waits for no turn.
pub(super) struct Making {
    turns: Arc<Turns>,
    worker: usize,
}

impl Making {
    /// The file has been made.
    pub(super) fn opened(&self, file: RawFd) {
        self.set(file);
    }

    fn set(&self, state: i32) {
        // Each side writes first and then reads what the other wrote: one of them sees the other.
        self.turns.slots[self.worker].store(state, Ordering::SeqCst);
        if self.turns.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.turns.busy.lock().unwrap_or_else(PoisonError::into_inner));
            self.turns.freed.notify_all();
        }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.set(NONE);
    }
}

impl Turns {
    pub(super) fn new(workers: usize) -> Turns {
        Turns {
            busy: Mutex::default(),
            freed: Condvar::new(),
            slots: (0..workers).map(|_| AtomicI32::new(NONE)).collect(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Before this worker makes a new file.
    pub(super) fn making(self: &Arc<Turns>, worker: usize) -> Making {
        self.slots[worker].store(UNOPENED, Ordering::SeqCst);
        Making { turns: Arc::clone(self), worker }
    }

    /// Waits while another thread writes to this file, which is open.
    pub(super) fn take(self: &Arc<Turns>, file: Id) -> Turn {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while self.is_being_made(file) || !busy.insert(file) {
            busy = self.freed.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        Turn { turns: Arc::clone(self), file }
    }

    /// Whether it is in a slot, or a slot's file is not known yet. (A descriptor that was closed meanwhile
    /// is another file's or none's: then its slot has changed as well.)
    fn is_being_made(&self, file: Id) -> bool {
        self.slots.iter().any(|slot| match slot.load(Ordering::SeqCst) {
            NONE => false,
            UNOPENED => true,
            fd => sys::stat_of(fd).is_ok_and(|stat| sys::id(&stat) == file),
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut busy = self.turns.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.remove(&self.file);
        drop(busy);
        self.turns.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_turn_waits_for_the_one_who_makes_the_file() {
        let place = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        let made = File::create(place.path().join("made")).unwrap_or_else(|e| panic!("{e}"));
        let other = File::create(place.path().join("other")).unwrap_or_else(|e| panic!("{e}"));
        let id = |file: &File| sys::stat_of(file.as_raw_fd()).map(|stat| sys::id(&stat));
        let (made_id, other_id) = (id(&made).unwrap_or((0, 0)), id(&other).unwrap_or((0, 0)));
        let turns = Arc::new(Turns::new(3));
        let making = turns.making(0);
        making.opened(made.as_raw_fd());
        // Another file's turn waits for nobody.
        drop(turns.take(other_id));
        let taken = AtomicI32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _turn = turns.take(made_id);
                taken.store(1, Ordering::SeqCst);
            });
            while turns.waiting.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            assert_eq!(taken.load(Ordering::SeqCst), 0);
            drop(making);
        });
        assert_eq!(taken.load(Ordering::SeqCst), 1);
    }
}
