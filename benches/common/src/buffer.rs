//! Memory that direct I/O accepts and whose address does not change when the value moves.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// Zeroed memory whose address is a multiple of 4096.
pub struct AlignedBuf {
    start: *mut u8,
    len: usize,
}

// SAFETY: the value owns its memory, as a `Box<[u8]>` does.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; shared references of safe code only read.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, 4096).expect("a buffer fits into the address space")
    }

    pub fn new(len: usize) -> AlignedBuf {
        assert!(len > 0, "an empty buffer reads nothing");
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(Self::layout(len)) };
        if start.is_null() {
            handle_alloc_error(Self::layout(len));
        }
        AlignedBuf { start, len }
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the value owns `len` initialised bytes at `start`.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the value is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with this layout.
        unsafe { dealloc(self.start, Self::layout(self.len)) }
    }
}
