//! Aligned buffers that are used again. The pool keeps at most 15 MiB.

use cringle_sys::fork::ForkLock;

/// The alignment of a buffer, which suffices for any disk.
const ALIGNMENT: usize = 4096;
/// The size of a buffer for the edges of a request, or for a small one.
pub(super) const SMALL_BYTES: usize = 16 << 10;
/// The size of a buffer for a part of a large request.
pub(super) const LARGE_BYTES: usize = 256 << 10;

/// The sizes of buffers, and the number of each that the pool keeps: of the small ones as many as a
/// worker has requests in flight, because a new buffer costs as much as a copy of its bytes.
const SIZES: [(usize, usize); 3] = [(SMALL_BYTES, 256), (80 << 10, 64), (LARGE_BYTES, 16)];

static KEPT: [ForkLock<Vec<Memory>>; SIZES.len()] =
    [const { ForkLock::new(Vec::new()) }; SIZES.len()];

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
    let class = SIZES.iter().position(|&(size, _)| len <= size);
    let size = class.map_or(len, |class| SIZES[class].0);
    let kept = class.and_then(|class| KEPT[class].lock().pop());
    let memory = kept.unwrap_or_else(|| vec![0; size + ALIGNMENT].into());
    let start = memory.as_ptr().addr().next_multiple_of(ALIGNMENT) - memory.as_ptr().addr();
    Buffer { memory, start, len }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        let size = memory.len() - ALIGNMENT;
        if let Some(class) = SIZES.iter().position(|&(known, _)| known == size) {
            let mut kept = KEPT[class].lock();
            if kept.len() < SIZES[class].1 {
                kept.push(memory);
            }
        }
    }
}

derefs! {
    [] Buffer => [u8],
    |it| &it.memory[it.start..][..it.len],
    mut &mut it.memory[it.start..][..it.len]
}
