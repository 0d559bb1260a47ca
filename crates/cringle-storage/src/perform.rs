//! How the operations of a batch are performed: the plain ones by the driver, the others by fibers.

use super::{Batch, OpId};
use cringle_core::worker::Current;
use cringle_driver::completion::OpState;
use cringle_driver::iopoll::NOT_POLLED;
use cringle_driver::{Op, OpSlot, blocking};
use cringle_std::fiber;
use cringle_std::internal::InternalFile;
use cringle_std::internal::perform_to_the_end;
use std::cell::RefCell;

/// The number of a batch's operations that fibers of their own perform at the same time.
const MAX_APART: usize = 64;

impl Batch<'_> {
    /// Performs the operations that have not ended.
    #[inline]
    pub(super) fn perform(&mut self, current: Current) {
        let polled = current.worker.driver().borrow_mut().mark_polled(&mut self.slots);
        if self.notes.is_empty() {
            current.perform(&self.slots, |_| true);
        } else {
            self.perform_beside(current);
        }
        if polled {
            self.end_polling(current);
        }
    }

    /// Performs the plain operations by the driver, while other fibers perform the ones that are
    /// kept apart.
    #[cold]
    fn perform_beside(&self, current: Current) {
        let is_apart = |slot: &OpSlot| slot.completion.state() == OpState::Apart;
        let numbered = (0..).map(OpId).zip(&self.slots);
        let apart = numbered.filter(|(_, slot)| is_apart(slot));
        let fibers = apart.clone().take(MAX_APART).count();
        if fibers == 0 {
            return current.perform(&self.slots, is_left);
        }
        let apart = RefCell::new(apart);
        let next = || apart.borrow_mut().next();
        let perform_rest = || {
            while let Some((id, slot)) = next() {
                slot.completion.refuse(self.perform_one(Current::get(), id, slot.op));
            }
        };
        fiber::scope(|s| {
            for _ in 0..fibers {
                // Without memory for another stack, fewer of them run at the same time.
                if fiber::Builder::new().spawn_scoped_local(s, perform_rest).is_err() {
                    break;
                }
            }
            current.perform(&self.slots, is_left);
            perform_rest();
        });
    }

    /// Repeats, together and without polling, the operations for which the kernel refused to poll.
    #[cold]
    fn end_polling(&mut self, current: Current) {
        for slot in &mut self.slots {
            if slot.op.is_polled() && slot.completion.result() == NOT_POLLED {
                *slot = OpSlot::new(slot.op.unpolled());
            }
        }
        if !current.is_interrupted() {
            current.perform(&self.slots, is_left);
        }
    }

    /// Performs one op of an operation separately, and returns its result.
    pub(super) fn perform_one(&self, current: Option<Current>, id: OpId, op: Op) -> i32 {
        if current.is_some_and(Current::is_interrupted) {
            return -libc::ECANCELED;
        }
        let op = op.unpolled();
        let file = self.file_of(id).filter(|file| file.performs_itself(&op));
        match (file, current) {
            // SAFETY: I1. The batch borrows what its ops point to until it has finished.
            (Some(file), _) => unsafe { file.perform_itself(&op) },
            (None, Some(current)) => perform_to_the_end(current, op),
            // SAFETY: as above.
            (None, None) => unsafe { blocking::perform(&op) },
        }
    }
}

/// Whether the driver has not been given an op that it is to perform.
fn is_left(slot: &OpSlot) -> bool {
    slot.completion.state() == OpState::New
}
