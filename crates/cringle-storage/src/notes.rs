//! What a batch keeps of the operations that the driver does not simply perform.

use super::OpId;
use super::mapped::{Copied, MappedFile};
use cringle_std::fs::File;
use cringle_sys::Misaligned;
use std::ptr::NonNull;

/// The notes of a batch, in the order of its operations. Without any, the driver performs them all.
pub(super) type Notes = Vec<(OpId, Note)>;

#[derive(Debug)]
pub(super) enum Note {
    /// The file, which the batch borrows: it may [perform](File::performs_itself) the operation, or
    /// the rest of it, itself.
    File(NonNull<File>),
    /// A read of a mapped file, which the batch borrows: it is copied if its pages are in memory.
    Mapped(NonNull<MappedFile>, Copied),
    /// The length of an exact operation that is longer than one op.
    Long(usize),
    /// The operation has ended before it was submitted.
    Refused,
    /// The kernel refused the operation because of this.
    Misaligned(Box<Misaligned>),
}

impl Note {
    pub(super) fn as_long(&self) -> Option<usize> {
        if let Note::Long(len) = self { Some(*len) } else { None }
    }

    pub(super) fn as_misaligned(&self) -> Option<Misaligned> {
        if let Note::Misaligned(why) = self { Some(**why) } else { None }
    }
}

/// Finds a note of an operation.
pub(super) fn find<T>(
    notes: &[(OpId, Note)],
    id: OpId,
    wanted: impl Fn(&Note) -> Option<T>,
) -> Option<T> {
    let from = notes.partition_point(|&(of, _)| of < id);
    let of_id = notes[from..].iter().take_while(|&&(of, _)| of == id);
    of_id.map(|(_, note)| note).find_map(wanted)
}
