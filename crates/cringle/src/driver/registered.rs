//! Registered files and buffers of the drivers without a ring. A file's slot owns a duplicate of
//! its descriptor. A buffer's slot holds nothing, because ops carry the buffer's address.

use crate::sys::{self, Owned};
use slab::Slab;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// The sizes of a ring's tables. The limits are the same everywhere.
pub(super) const FILE_SLOTS: usize = 1024;
pub(super) const BUFFER_SLOTS: usize = 4096;

#[derive(Default)]
pub(super) struct Registered {
    files: Slab<Owned>,
    buffers: Slab<()>,
}

impl Registered {
    pub(super) fn add_file(&mut self, fd: RawFd) -> io::Result<u32> {
        insert(&mut self.files, FILE_SLOTS, "files", sys::duplicate(fd)?).map(|slot| slot as u32)
    }

    pub(super) fn remove_file(&mut self, slot: u32) {
        self.files.remove(slot as usize);
    }

    /// The descriptor in a slot.
    pub(super) fn file(&self, slot: i32) -> Option<RawFd> {
        self.files.get(usize::try_from(slot).ok()?).map(AsRawFd::as_raw_fd)
    }

    pub(super) fn add_buffer(&mut self) -> io::Result<u16> {
        insert(&mut self.buffers, BUFFER_SLOTS, "buffers", ()).map(|slot| slot as u16)
    }

    pub(super) fn remove_buffer(&mut self, slot: u16) {
        self.buffers.remove(slot.into());
    }
}

/// Takes a slot, if one of the limited number is free.
pub(super) fn insert<T>(
    slots: &mut Slab<T>,
    limit: usize,
    what: &str,
    value: T,
) -> io::Result<usize> {
    if slots.len() == limit {
        let text = format!(
            "all {limit} slots for registered {what} of this worker are taken: drop some, or use \
             plain {what} for the rest"
        );
        return Err(io::Error::other(text));
    }
    Ok(slots.insert(value))
}
