//! A ring of provided buffers: the kernel takes a buffer when bytes arrive, so that a waiting
//! connection needs none.

use super::super::READ_BYTES;
use io_uring::Submitter;
use io_uring::types::BufRingEntry;
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering::Release};

/// The number of the only group.
pub(super) const GROUP: u16 = 0;
/// The distance of two buffers. With a power of two, all buffers would start in a few sets of the
/// cache.
const STRIDE: usize = READ_BYTES + 64;
/// The most buffers. The kernel uses them in turn, so each costs memory; too few only cause
/// `ENOBUFS`, after which the loop receives again.
const MOST: usize = 1 << 12;

/// The buffers and their ring. The memory is never freed.
pub(super) struct Buffers {
    entries: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    count: usize,
    /// The number of buffers given to the kernel so far, modulo 2¹⁶. The kernel sees those that
    /// were published.
    given: u16,
}

impl Buffers {
    /// Registers a buffer for each connection, up to [`MOST`].
    pub(super) fn register(submitter: &Submitter<'_>, connections: usize) -> io::Result<Buffers> {
        let count = connections.next_power_of_two().clamp(64, MOST);
        let entries = lasting::<BufRingEntry>(count * size_of::<BufRingEntry>());
        let memory = lasting::<u8>(count * STRIDE);
        // SAFETY: the memory holds `count` zeroed entries, is page-aligned, and is never freed. The
        // first entry's tail is 0, so the kernel sees no buffer yet.
        unsafe {
            let addr = entries.as_ptr().addr() as u64;
            submitter.register_buf_ring_with_flags(addr, count as u16, GROUP, 0)?;
        }
        let mut buffers = Buffers { entries, memory, count, given: 0 };
        (0..count).for_each(|id| buffers.give(id as u16));
        buffers.publish();
        Ok(buffers)
    }

    /// Returns the bytes that the kernel has received into a buffer that was not given back yet.
    #[inline]
    pub(super) fn bytes(&self, id: u16, count: usize) -> &[u8] {
        assert!(usize::from(id) < self.count && count <= READ_BYTES, "the kernel has only these");
        // SAFETY: the assertion keeps the range within `memory`, which is initialised. The kernel
        // writes to the buffer again only after `give`, which needs `&mut self` and so ends this
        // borrow.
        unsafe {
            let first = self.memory.add(usize::from(id) * STRIDE);
            NonNull::slice_from_raw_parts(first, count).as_ref()
        }
    }

    /// Gives a buffer back to the kernel, with the next [`publish`](Buffers::publish).
    #[inline]
    pub(super) fn give(&mut self, id: u16) {
        debug_assert!(usize::from(id) < self.count, "the kernel has only these");
        let slot = usize::from(self.given) & (self.count - 1);
        // SAFETY: `slot` is less than `count`, a power of two, and `id` comes from the kernel or
        // from `register`, so both addresses lie within their allocations. The kernel reads
        // published entries only; the ring has as many slots as buffers, so an entry that the
        // kernel has not consumed yet is never overwritten.
        unsafe {
            let entry = self.entries.add(slot).as_mut();
            entry.set_addr(self.memory.add(usize::from(id) * STRIDE).as_ptr().addr() as u64);
            entry.set_len(READ_BYTES as u32);
            entry.set_bid(id);
        }
        self.given = self.given.wrapping_add(1);
    }

    /// Lets the kernel see the buffers that were given back.
    #[inline]
    pub(super) fn publish(&self) {
        // SAFETY: the tail is an aligned field of the first entry, in memory that is never freed.
        // Only this function writes to it, and the kernel reads it atomically (`give` writes other
        // fields).
        let tail =
            unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()).cast_mut()) };
        tail.store(self.given, Release);
    }
}

/// Allocates zeroed, page-aligned memory that is never freed. `bytes` must not be 0.
fn lasting<T>(bytes: usize) -> NonNull<T> {
    assert!(bytes > 0, "an allocation needs a size");
    let Ok(layout) = Layout::from_size_align(bytes, 4096) else {
        unreachable!("the size is far below the maximum")
    };
    // SAFETY: the size is not 0.
    let memory = unsafe { alloc_zeroed(layout) };
    NonNull::new(memory.cast()).unwrap_or_else(|| handle_alloc_error(layout))
}
