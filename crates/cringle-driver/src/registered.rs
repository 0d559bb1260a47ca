//! The slots of registered files and buffers. A file's slot owns a duplicate of its descriptor: for
//! the drivers without a ring, and for the plain call after an `EAGAIN` of a ring. A buffer's slot
//! holds nothing, because ops carry the buffer's address.

use cringle_sys::Owned;
use slab::Slab;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// The sizes of a ring's tables. The limits are the same everywhere.
pub(super) const FILE_SLOTS: usize = 1024;
pub(super) const BUFFER_SLOTS: usize = 4096;

#[derive(Default)]
pub struct Registered {
    files: Slab<Owned>,
    buffers: Slab<()>,
}

impl Registered {
    /// Takes a slot for a file, of which this is a duplicate.
    pub fn add_file(&mut self, duplicate: Owned) -> io::Result<u32> {
        insert(&mut self.files, FILE_SLOTS, "files", duplicate).map(|slot| slot as u32)
    }

    pub fn remove_file(&mut self, slot: u32) {
        self.files.remove(slot as usize);
    }

    /// The descriptor in a slot.
    pub fn file(&self, slot: i32) -> Option<RawFd> {
        self.files.get(usize::try_from(slot).ok()?).map(AsRawFd::as_raw_fd)
    }

    /// Whether no file was ever added: a slab keeps its memory.
    pub(super) fn has_no_files(&self) -> bool {
        self.files.capacity() == 0
    }

    /// Whether no buffer was ever added.
    pub(super) fn has_no_buffers(&self) -> bool {
        self.buffers.capacity() == 0
    }

    pub fn add_buffer(&mut self) -> io::Result<u16> {
        insert(&mut self.buffers, BUFFER_SLOTS, "buffers", ()).map(|slot| slot as u16)
    }

    pub fn remove_buffer(&mut self, slot: u16) {
        self.buffers.remove(slot.into());
    }
}

/// Takes a slot, if one of the limited number is free.
fn insert<T>(slots: &mut Slab<T>, limit: usize, what: &str, value: T) -> io::Result<usize> {
    if slots.len() == limit {
        let text = format!(
            "all {limit} slots for registered {what} of this worker are taken: drop some, or use \
             plain {what} for the rest"
        );
        return Err(io::Error::other(text));
    }
    Ok(slots.insert(value))
}
