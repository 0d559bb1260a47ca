//! One writer at a time for a file that is written in place.
//!
//! Two names of a target may be one file: hard links, or links to it. Two threads that wrote to it at once would
//! leave a mixture of two sources; in turn, the last one's content stays, as with one thread.

use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

type Id = (u64, u64);

#[derive(Default)]
pub(super) struct Turns {
    busy: Mutex<HashSet<Id>>,
    freed: Condvar,
}

/// The right to write to one file, until it is dropped. Whoever has one waits for no other and for no
/// [`Links`](super::links::Links), so every turn ends.
pub(super) struct Turn {
    turns: Arc<Turns>,
    file: Id,
}

impl Turns {
    /// Waits while another thread has the turn of this file.
    pub(super) fn take(self: &Arc<Turns>, file: Id) -> Turn {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        while !busy.insert(file) {
            busy = self.freed.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
        Turn { turns: Arc::clone(self), file }
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
