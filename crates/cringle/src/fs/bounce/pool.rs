//! Aligned buffers that are used again. The pool keeps at most 4.5 MiB.

use crate::sys::lock::Mutex;
use std::ops::{Deref, DerefMut};

/// The alignment of a buffer, which suffices for any disk.
const ALIGNMENT: usize = 4096;
/// The size of a buffer for the edges of a request, or for a small one.
pub(super) const SMALL_BYTES: usize = 16 << 10;
/// The size of a buffer for a part of a large request.
pub(super) const LARGE_BYTES: usize = 256 << 10;

static SMALL: Mutex<Vec<Memory>> = Mutex::new(Vec::new());
static LARGE: Mutex<Vec<Memory>> = Mutex::new(Vec::new());
/// The number of buffers of each size that the pool keeps.
const MOST_SMALL: usize = 32;
const MOST_LARGE: usize = 16;

/// Memory with room for an aligned start.
type Memory = Box<[u8]>;

/// A buffer at a multiple of the alignment. Its bytes are arbitrary.
pub(super) struct Buffer {
    memory: Memory,
    start: usize,
    len: usize,
}

/// Returns a buffer of `len` bytes.
pub(super) fn take(len: usize) -> Buffer {
    let size = [SMALL_BYTES, LARGE_BYTES].into_iter().find(|&size| len <= size).unwrap_or(len);
    let kept = shelf(size).and_then(|(shelf, _)| shelf.lock().pop());
    let memory = kept.unwrap_or_else(|| vec![0; size + ALIGNMENT].into());
    let start = memory.as_ptr().addr().next_multiple_of(ALIGNMENT) - memory.as_ptr().addr();
    Buffer { memory, start, len }
}

/// Returns where buffers of the size are kept, and how many.
fn shelf(size: usize) -> Option<(&'static Mutex<Vec<Memory>>, usize)> {
    match size {
        SMALL_BYTES => Some((&SMALL, MOST_SMALL)),
        LARGE_BYTES => Some((&LARGE, MOST_LARGE)),
        _ => None,
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        if let Some((shelf, most)) = shelf(memory.len() - ALIGNMENT) {
            let mut kept = shelf.lock();
            if kept.len() < most {
                kept.push(memory);
            }
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}
