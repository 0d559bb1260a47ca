//! A block of memory in the form in which each runtime wants to own it.
//!
//! Blocks are pieces of one area, so that those of all engines lie equally close: buffers at the
//! start of a page each would share a few sets of the first cache, at the owners' expense.

use common::buffer::AlignedBuf;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// It counts as wholly initialised: the area is zeroed when made.
pub(crate) struct Piece {
    area: Arc<AlignedBuf>,
    at: usize,
    len: usize,
}

impl Piece {
    pub(crate) fn cut(area: AlignedBuf, len: usize) -> Vec<Piece> {
        let count = area.bytes().len() / len;
        let area = Arc::new(area);
        (0..count).map(|index| Piece { area: Arc::clone(&area), at: index * len, len }).collect()
    }

    fn start(&self) -> *mut u8 {
        self.area.as_ptr().wrapping_add(self.at)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the range is this piece's own part of the area, which is initialised and alive.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; no other piece has this part, nobody makes references to the whole
        // area any more, and this piece is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

// SAFETY: a piece is the only user of its part of the area.
unsafe impl Send for Piece {}

// SAFETY: the area does not move while a piece is left, and `start` and `len` stay in it.
unsafe impl tokio_uring::buf::IoBuf for Piece {
    fn stable_ptr(&self) -> *const u8 {
        self.start()
    }

    fn bytes_init(&self) -> usize {
        self.len
    }

    fn bytes_total(&self) -> usize {
        self.len
    }
}

// SAFETY: as above.
unsafe impl tokio_uring::buf::IoBufMut for Piece {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.start()
    }

    unsafe fn set_init(&mut self, _: usize) {}
}

// SAFETY: as above.
unsafe impl monoio::buf::IoBufMut for Piece {
    fn write_ptr(&mut self) -> *mut u8 {
        self.start()
    }

    fn bytes_total(&mut self) -> usize {
        self.len
    }

    unsafe fn set_init(&mut self, _: usize) {}
}

impl compio::buf::IoBuf for Piece {
    fn as_init(&self) -> &[u8] {
        self.bytes()
    }
}

impl compio::buf::SetLen for Piece {
    unsafe fn set_len(&mut self, _: usize) {}
}

impl compio::buf::IoBufMut for Piece {
    fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: as for `bytes_mut`; initialised bytes may be seen as uninitialised ones, as long
        // as nobody de-initialises them, and a read does not.
        unsafe { std::slice::from_raw_parts_mut(self.start().cast(), self.len) }
    }
}
