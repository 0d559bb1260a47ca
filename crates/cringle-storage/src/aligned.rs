//! Memory for direct I/O.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// The alignment of every [`AlignedBuf`] in bytes, which suffices for any disk.
pub(crate) const ALIGNMENT: usize = 4096;

/// A zeroed buffer at a multiple of 4096, which direct I/O accepts.
///
/// ```
/// use cringle::block::AlignedBuf;
///
/// let mut page = AlignedBuf::new(4096);
/// page[0] = 7;
/// assert!(page.as_ptr().addr().is_multiple_of(4096));
/// ```
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the contract of `Send` holds: the value owns its memory, as a `Box<[u8]>` does.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; a shared reference gives only read access.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Allocates `len` zero bytes.
    ///
    /// ```
    /// assert_eq!(*cringle::block::AlignedBuf::new(3), [0, 0, 0]);
    /// ```
    ///
    /// # Panics
    ///
    /// If the size overflows an `isize`, as `Vec` does.
    pub fn new(len: usize) -> AlignedBuf {
        if len == 0 {
            return AlignedBuf { start: NonNull::<Aligned>::dangling().cast(), len };
        }
        let layout = Self::layout(len);
        // SAFETY: the contract of `alloc_zeroed`: the layout's size is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => AlignedBuf { start, len },
            None => handle_alloc_error(layout),
        }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGNMENT).expect("a buffer fits into the address space")
    }

    pub(super) fn as_non_null(&self) -> NonNull<u8> {
        self.start
    }
}

/// A type whose dangling pointer has the alignment, for empty buffers.
#[repr(align(4096))]
struct Aligned;

const _: () = assert!(align_of::<Aligned>() == ALIGNMENT);

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the contract of `dealloc`: `new` allocated the memory with this layout.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) }
        }
    }
}

derefs! {
    [] AlignedBuf => [u8],
    // SAFETY: the memory belongs to this value, which is borrowed. It is initialised and `len`
    // bytes long.
    |it| unsafe { std::slice::from_raw_parts(it.start.as_ptr(), it.len) },
    // SAFETY: as above, and `it` is borrowed exclusively.
    mut unsafe { std::slice::from_raw_parts_mut(it.start.as_ptr(), it.len) }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for AlignedBuf {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

brief_debug!(AlignedBuf, |it| len: it.len);
