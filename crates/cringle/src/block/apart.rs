//! The operations of a batch that the ring does not perform as they are.

use super::batch::{Batch, OpId, perform_again};
use crate::driver::completion::OpState;
use crate::driver::{Op, OpSlot};
use crate::fiber;
use crate::fs::File;
use crate::runtime::worker::Current;
use std::cell::Cell;

/// The number of a batch's operations that fibers of their own perform at the same time.
const MAX_APART: usize = 64;

/// The operations of a batch that files may perform themselves, with their files.
#[derive(Debug, Default)]
pub(super) struct ByFiles<'b>(pub(super) Vec<(OpId, &'b File)>);

impl<'b> ByFiles<'b> {
    /// Returns the file of an operation's op, if it performs the op itself.
    pub(super) fn file_of(&self, id: OpId, op: &Op) -> Option<&'b File> {
        let at = self.0.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        Some(self.0[at].1).filter(|file| file.performs_itself(op))
    }
}

impl Batch<'_> {
    /// Performs the operations that were not copied through the ring, while other fibers perform
    /// the operations
    ///
    /// - that are kept off the ring, as plain calls on threads;
    /// - that need a buffer, a lock, or a look at other writes: see [`File::performs_itself`].
    #[cold]
    pub(super) fn perform_some_apart(&mut self, current: Current) {
        let by_files = std::mem::take(&mut self.by_files);
        let file_of = |at: usize, op: &Op| by_files.file_of(OpId(at as u32), op);
        let is_apart = |&at: &usize| {
            let op = &self.slots[at].op;
            op.is_off_ring() || file_of(at, op).is_some()
        };
        let is_left = |&at: &usize| self.slots[at].completion.state() == OpState::New;
        let left = (0..self.slots.len()).filter(is_left);
        let (apart, on_ring): (Vec<usize>, Vec<usize>) = left.partition(is_apart);
        let mut others = Batch::with_capacity(on_ring.len());
        others.slots.extend(on_ring.iter().map(|&at| OpSlot::new(self.slots[at].op)));
        let (next, slots) = (Cell::new(0), &self.slots);
        let perform_rest = || {
            while let Some(&at) = apart.get(next.replace(next.get() + 1)) {
                let current = Current::get().expect("called on fibers");
                let op = slots[at].op;
                let result = match file_of(at, &op) {
                    Some(_) if current.refuses() => -libc::ECANCELED,
                    // SAFETY: I1. The batch borrows what its ops point to until it has finished.
                    Some(file) => unsafe { file.perform_itself(&op) },
                    None => perform_again(current, op),
                };
                slots[at].completion.refuse(result);
            }
        };
        fiber::scope(|s| {
            for _ in 0..apart.len().min(MAX_APART) {
                // Without memory for another stack, fewer of them run at the same time.
                if fiber::Builder::new().spawn_scoped_local(s, perform_rest).is_err() {
                    break;
                }
            }
            others.perform_together(current);
            perform_rest();
        });
        on_ring.into_iter().zip(others.slots).for_each(|(at, slot)| self.slots[at] = slot);
        self.by_files = by_files;
    }
}
