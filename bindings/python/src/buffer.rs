//! Aligned memory, which is reused.
//!
//! A page that the kernel has never given to the process costs a fault at its first use, more than
//! a cached read. So the memory of dropped buffers is kept for the next ones, up to [`MAX_KEPT`].

use crate::{engine, integers};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_int;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Mutex;

/// The alignment in bytes, which suffices for direct I/O on any disk.
pub(crate) const ALIGNMENT: usize = 4096;
/// The most bytes of dropped buffers that are kept.
const MAX_KEPT: usize = 64 << 20;
/// The most bytes that are zeroed before other threads of Python, and signals, get a turn.
const ZEROED_AT_ONCE: usize = 4 << 20;

/// Memory at a multiple of 4096 bytes.
#[pyclass(frozen, weakref, module = "cringle")]
pub(crate) struct Buffer {
    block: Block,
    len: usize,
}

struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the contract of `Send`: the block owns its memory.
unsafe impl Send for Block {}
// SAFETY: as above; a shared reference gives only the address.
unsafe impl Sync for Block {}

#[derive(Default)]
struct Kept {
    blocks: Vec<Block>,
    bytes: usize,
}

/// Only tried: a `fork` may have left it locked (**P4**).
static KEPT: Mutex<Kept> = Mutex::new(Kept { blocks: Vec::new(), bytes: 0 });

impl Buffer {
    pub(crate) fn allocate(len: usize) -> PyResult<Buffer> {
        let refused = || PyMemoryError::new_err(format!("cannot allocate {len} bytes"));
        let size = len.max(1).checked_next_multiple_of(ALIGNMENT).ok_or_else(refused)?;
        let layout = Layout::from_size_align(size, ALIGNMENT).map_err(|_| refused())?;
        let block = Block::kept(layout).or_else(|| Block::new(layout)).ok_or_else(refused)?;
        Ok(Buffer { block, len })
    }

    /// Zeroes a part of a buffer that only this thread uses.
    pub(crate) fn zero(&self, part: Range<usize>) {
        assert!(part.end <= self.len);
        // SAFETY: the block has at least `len` bytes.
        unsafe { self.block.start.as_ptr().add(part.start).write_bytes(0, part.len()) };
    }

    pub(crate) fn range(&self) -> (*mut u8, usize) {
        (self.block.start.as_ptr(), self.len)
    }
}

impl Block {
    fn new(layout: Layout) -> Option<Block> {
        // SAFETY: the contract of `alloc`: the size is not 0. The bytes stay uninitialised for
        // Rust, which never reads them.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        Some(Block { start, layout })
    }

    fn kept(layout: Layout) -> Option<Block> {
        let mut kept = KEPT.try_lock().ok()?;
        let at = kept.blocks.iter().rposition(|block| block.layout == layout)?;
        kept.bytes -= layout.size();
        Some(kept.blocks.swap_remove(at))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Ok(mut kept) = KEPT.try_lock()
            && kept.bytes + self.layout.size() <= MAX_KEPT
        {
            kept.bytes += self.layout.size();
            kept.blocks.push(Block { start: self.start, layout: self.layout });
            return;
        }
        // SAFETY: the contract of `dealloc`: `alloc` has returned the memory for this layout, and
        // the block was its only owner.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

#[pymethods]
impl Buffer {
    #[new]
    fn new(py: Python<'_>, #[pyo3(from_py_with = size_of)] size: i64) -> PyResult<Buffer> {
        let len = usize::try_from(size).map_err(|_| {
            PyValueError::new_err(format!("size is {size}: it must not be negative"))
        })?;
        let buffer = Buffer::allocate(len)?;
        if len <= ZEROED_AT_ONCE {
            buffer.zero(0..len);
            return Ok(buffer);
        }
        for start in (0..len).step_by(ZEROED_AT_ONCE) {
            engine::detached(py, || buffer.zero(start..len.min(start + ZEROED_AT_ONCE)));
            py.check_signals()?;
        }
        Ok(buffer)
    }

    fn __len__(&self) -> usize {
        self.len
    }

    fn __repr__(&self) -> String {
        format!("<cringle.Buffer of {} bytes>", self.len)
    }

    /// # Safety
    ///
    /// The interpreter calls it with a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let (start, len) = slf.get().range();
        // SAFETY: the contract of `PyBuffer_FillInfo`: the view keeps a reference to the object,
        // which keeps the memory.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast(), len as isize, 0, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

fn size_of(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    integers::argument(object, "size")
}
