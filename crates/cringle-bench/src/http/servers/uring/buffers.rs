//! A ring of buffers that the kernel receives into: it takes one when there is something to receive, so
//! that a connection which waits has none.

use super::super::READ_BYTES;
use io_uring::Submitter;
use io_uring::types::BufRingEntry;
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering::Release};

/// The number of the only group.
pub(super) const GROUP: u16 = 0;
/// From one buffer to the next: at a power of two all beginnings would share a few sets of the cache.
const STRIDE: usize = READ_BYTES + 64;
/// They are used in turn, so that all are touched: more would cost memory, and too few are survived.
const MOST: usize = 1 << 12;

/// It lives as long as the process, and so does its memory.
pub(super) struct Buffers {
    entries: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    count: usize,
    /// How many were ever given; the kernel knows of those that were published.
    given: u16,
}

impl Buffers {
    /// One for each connection, within reason: if all have asked, none is left without.
    pub(super) fn register(submitter: &Submitter<'_>, connections: usize) -> io::Result<Buffers> {
        let count = connections.next_power_of_two().clamp(64, MOST);
        let entries = lasting::<BufRingEntry>(count * size_of::<BufRingEntry>());
        let memory = lasting::<u8>(count * STRIDE);
        // SAFETY: the ring has so many entries, all zero, which is a valid one, and is never freed.
        unsafe {
            let addr = entries.as_ptr().addr() as u64;
            submitter.register_buf_ring_with_flags(addr, count as u16, GROUP, 0)?;
        }
        let mut buffers = Buffers { entries, memory, count, given: 0 };
        (0..count).for_each(|id| buffers.give(id as u16));
        buffers.publish();
        Ok(buffers)
    }

    /// What the kernel has put into it. It is not given back yet.
    #[inline]
    pub(super) fn bytes(&self, id: u16, count: usize) -> &[u8] {
        assert!(usize::from(id) < self.count && count <= READ_BYTES, "the kernel has only these");
        // SAFETY: it lies in the memory; the kernel writes to it again when it was given and published,
        // which takes this borrow's end.
        unsafe {
            let first = self.memory.add(usize::from(id) * STRIDE);
            NonNull::slice_from_raw_parts(first, count).as_ref()
        }
    }

    /// Back to the kernel, with the next [`publish`](Buffers::publish).
    #[inline]
    pub(super) fn give(&mut self, id: u16) {
        let place = usize::from(self.given) & (self.count - 1);
        // SAFETY: both lie within what was allocated; the kernel reads an entry when it was published, and
        // there are as many split as buffers, so that none is overwritten before.
        unsafe {
            let entry = self.entries.add(place).as_mut();
            entry.set_addr(self.memory.add(usize::from(id) * STRIDE).as_ptr().addr() as u64);
            entry.set_len(READ_BYTES as u32);
            entry.set_bid(id);
        }
        self.given = self.given.wrapping_add(1);
    }

    #[inline]
    pub(super) fn publish(&self) {
        // SAFETY: the ring's tail lies in its first entry, aligned, and is written here alone.
        let tail =
            unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()).cast_mut()) };
        tail.store(self.given, Release);
    }
}

/// Zeroed pages that are never freed.
fn lasting<T>(bytes: usize) -> NonNull<T> {
    let Ok(layout) = Layout::from_size_align(bytes, 4096) else {
        unreachable!("it is small, and not empty")
    };
    // SAFETY: the size is not zero.
    let memory = unsafe { alloc_zeroed(layout) };
    NonNull::new(memory.cast()).unwrap_or_else(|| handle_alloc_error(layout))
}
