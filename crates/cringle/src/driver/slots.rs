//! Registered files and buffers: slots that name a duplicate of the file. Buffers need none, since
//! ops carry their address.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// As many as a ring has.
const FILE_SLOTS: usize = 1024;
const BUFFER_SLOTS: usize = 4096;

#[derive(Default)]
pub(super) struct Slots {
    files: Vec<Option<OwnedFd>>,
    buffers: Vec<bool>,
}

impl Slots {
    pub(super) fn add_file(&mut self, fd: RawFd) -> io::Result<u32> {
        // SAFETY: the caller's file is open for the length of the call.
        let file = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?;
        let slot = free_slot(&mut self.files, FILE_SLOTS, "files", Option::is_none)?;
        self.files[slot] = Some(file);
        Ok(slot as u32)
    }

    pub(super) fn remove_file(&mut self, slot: u32) {
        self.files[slot as usize] = None;
    }

    /// The descriptor behind a slot.
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
        self.buffers[usize::from(slot)] = false;
    }
}

fn free_slot<T: Default>(
    slots: &mut Vec<T>,
    most: usize,
    what: &str,
    is_free: impl Fn(&T) -> bool,
) -> io::Result<usize> {
    if let Some(slot) = slots.iter().position(is_free) {
        return Ok(slot);
    }
    if slots.len() == most {
        let text = format!(
            "all {most} slots for registered {what} of this worker are taken: drop some, or use plain {what} for the rest"
        );
        return Err(io::Error::other(text));
    }
    slots.push(T::default());
    Ok(slots.len() - 1)
}
