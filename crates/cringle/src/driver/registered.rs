//! Registered files and buffers of the drivers without a ring. A file's slot owns a duplicate of
//! its descriptor. A buffer's slot holds nothing, because ops carry the buffer's address.

use crate::sys::{self, Owned};
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// The sizes of a ring's tables, so that the limits are the same everywhere.
const FILE_SLOTS: usize = 1024;
const BUFFER_SLOTS: usize = 4096;

#[derive(Default)]
pub(super) struct Registered {
    files: Vec<Option<Owned>>,
    buffers: Vec<bool>,
}

impl Registered {
    pub(super) fn add_file(&mut self, fd: RawFd) -> io::Result<u32> {
        let file = sys::duplicate(fd)?;
        let slot = free_slot(&mut self.files, FILE_SLOTS, "files", Option::is_none)?;
        self.files[slot] = Some(file);
        Ok(slot as u32)
    }

    pub(super) fn remove_file(&mut self, slot: u32) {
        let file = self.files[slot as usize].take();
        debug_assert!(file.is_some(), "a registered file was removed twice");
    }

    /// The descriptor in a slot.
    pub(super) fn file(&self, slot: i32) -> Option<RawFd> {
        let slot = usize::try_from(slot).ok()?;
        self.files.get(slot)?.as_ref().map(AsRawFd::as_raw_fd)
    }

    pub(super) fn add_buffer(&mut self) -> io::Result<u16> {
        let slot = free_slot(&mut self.buffers, BUFFER_SLOTS, "buffers", |taken| !taken)?;
        self.buffers[slot] = true;
        Ok(slot as u16)
    }

    pub(super) fn remove_buffer(&mut self, slot: u16) {
        let was_taken = std::mem::take(&mut self.buffers[usize::from(slot)]);
        debug_assert!(was_taken, "a registered buffer was removed twice");
    }
}

fn free_slot<T: Default>(
    slots: &mut Vec<T>,
    limit: usize,
    kind: &str,
    is_free: impl Fn(&T) -> bool,
) -> io::Result<usize> {
    if let Some(slot) = slots.iter().position(is_free) {
        return Ok(slot);
    }
    if slots.len() == limit {
        let text = format!(
            "all {limit} slots for registered {kind} of this worker are taken: drop some, or use \
             plain {kind} for the rest"
        );
        return Err(io::Error::other(text));
    }
    slots.push(T::default());
    Ok(slots.len() - 1)
}
