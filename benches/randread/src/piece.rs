//! A block of memory that runtimes can own.
//!
//! Blocks are pieces of one area, so that the blocks of all engines lie equally close. Buffers that
//! each start at a page would share a few sets of the first-level cache.

use cringle::block::AlignedBuf;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// A block of the area. It is initialised, because the area is zeroed.
pub(crate) struct Piece {
    _area: Arc<AlignedBuf>,
    start: *mut u8,
    len: usize,
}

impl Piece {
    pub(crate) fn cut(mut area: AlignedBuf, len: usize) -> Vec<Piece> {
        let (first, count) = (area.as_mut_ptr(), area.len() / len);
        let area = Arc::new(area);
        let start = |index| first.wrapping_add(index * len);
        let piece = |index| Piece { _area: Arc::clone(&area), start: start(index), len };
        (0..count).map(piece).collect()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the range is this piece's part of the area, which is initialised and alive.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above. No other piece has this part, no reference to the whole area exists
        // any more, and this piece is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

// SAFETY: only this piece uses its part of the area.
unsafe impl Send for Piece {}

// SAFETY: the area does not move while a piece exists, and `start` and `len` stay within it.
unsafe impl tokio_uring::buf::IoBuf for Piece {
    fn stable_ptr(&self) -> *const u8 {
        self.start
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
        self.start
    }

    unsafe fn set_init(&mut self, _: usize) {}
}

// SAFETY: as above.
unsafe impl monoio::buf::IoBufMut for Piece {
    fn write_ptr(&mut self) -> *mut u8 {
        self.start
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
        // SAFETY: as for `bytes_mut`. Initialised bytes may be used as `MaybeUninit` as long as the
        // user does not write uninitialised ones, and a read does not.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.len) }
    }
}
