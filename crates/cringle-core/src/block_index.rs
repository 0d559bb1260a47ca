//! The blocks of one worker's fibers by position, for the other workers of the runtime and for
//! debuggers.
//!
//! The worker alone adds blocks. They are never removed, and keep their addresses until the runtime
//! has ended (**I2**). So a reader needs no lock: it finds a block, or none yet.

use super::fiber::Fiber;
use cringle_sys::debug_info::Field;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The first chunk has this many entries, each further one twice as many as the one before.
const FIRST: usize = 64;
const CHUNKS: usize = 27;

type Entry = AtomicPtr<Fiber>;

/// See the module.
#[derive(Default)]
#[repr(transparent)]
pub struct BlockIndex {
    chunks: [AtomicPtr<Entry>; CHUNKS],
}

/// The chunk of a position, its length, and the place in it.
fn place(position: usize) -> (usize, usize, usize) {
    let chunk = (position / FIRST + 1).ilog2() as usize;
    let start = FIRST * ((1 << chunk) - 1);
    (chunk, FIRST << chunk, position - start)
}

/// How a debugger reads the index.
pub const FIELDS: &[Field] =
    &[Field::new("blocks.first", FIRST), Field::new("blocks.chunks", CHUNKS)];

impl BlockIndex {
    /// Adds a block. For the worker itself, which adds them by position.
    pub(super) fn add(&self, position: usize, block: NonNull<Fiber>) {
        let (chunk, len, at) = place(position);
        let mut entries = self.chunks[chunk].load(Ordering::Relaxed);
        if entries.is_null() {
            let new: Box<[Entry]> = (0..len).map(|_| Entry::default()).collect();
            entries = Box::into_raw(new).cast();
            self.chunks[chunk].store(entries, Ordering::Release);
        }
        // SAFETY: I2. The chunk has `len` entries, of which `at` is one.
        unsafe { &*entries.add(at) }.store(block.as_ptr(), Ordering::Release);
    }

    /// Finds a block. For any worker of the runtime.
    #[inline]
    pub(super) fn get(&self, position: usize) -> Option<NonNull<Fiber>> {
        let (chunk, _, at) = place(position);
        let entries = NonNull::new(self.chunks.get(chunk)?.load(Ordering::Acquire))?;
        // SAFETY: I2. As in `add`; a chunk is freed with the index.
        NonNull::new(unsafe { entries.add(at).as_ref() }.load(Ordering::Acquire))
    }
}

impl Drop for BlockIndex {
    fn drop(&mut self) {
        for (chunk, entries) in self.chunks.iter_mut().enumerate() {
            let entries = *entries.get_mut();
            if !entries.is_null() {
                let chunk = std::ptr::slice_from_raw_parts_mut(entries, FIRST << chunk);
                // SAFETY: I2. It came from a box of this length, in `add`, and no other code refers
                // to the index.
                drop(unsafe { Box::from_raw(chunk) });
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn positions_fill_the_chunks_without_gaps() {
        let mut expected = 0;
        for chunk in 0..10 {
            for at in 0..FIRST << chunk {
                assert_eq!(place(expected), (chunk, FIRST << chunk, at));
                expected += 1;
            }
        }
    }

    #[test]
    fn finds_what_was_added_and_nothing_else() {
        let index = BlockIndex::default();
        let block = |n: usize| NonNull::without_provenance((8 * (n + 1)).try_into().unwrap());
        for n in 0..1000 {
            assert_eq!(index.get(n), None);
            index.add(n, block(n));
        }
        assert!(
            (0..1001).map(|at| index.get(at)).eq((0..1000).map(|at| Some(block(at))).chain([None]))
        );
        assert_eq!(index.get(1000), None);
        assert_eq!(index.get(u32::MAX as usize), None);
    }
}
