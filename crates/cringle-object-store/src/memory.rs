//! Memory for results.
//!
//! An allocator takes a large buffer from the kernel and gives it back, so each of its pages costs
//! a fault: together as long as the copy into it. [`Spares`] keeps such buffers. And an allocator's
//! begin 16 bytes into a page, where some processors (AMD's) copy at a sixth of their speed. So the
//! bytes of the results begin with a page. (An `AlignedBuf` would be filled with zeros first.)

use bytes::Bytes;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The length of the shortest buffer that is kept.
const KEPT_BYTES: usize = 64 << 10;
/// The most bytes that are kept.
const MOST_BYTES: usize = 16 << 20;
const PAGE_BYTES: usize = 4096;

/// Buffers whose results were dropped, for the next results: the last one is the first that is used
/// again. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spares(Arc<Mutex<Vec<Vec<u8>>>>);

impl Spares {
    /// Returns a buffer of this length, with any content. At most a fifth of its memory is unused.
    pub(crate) fn take(&self, len: usize) -> Memory {
        if len < KEPT_BYTES {
            return Memory::Short(vec![0; len]);
        }
        let whole = len.saturating_add(PAGE_BYTES);
        let fits = |spare: &Vec<u8>| (whole..=whole.saturating_add(len / 4)).contains(&spare.len());
        let spare = self.0.try_lock().ok().and_then(|mut spares| {
            let found = spares.iter().rposition(fits)?;
            Some(spares.remove(found))
        });
        let buf = spare.unwrap_or_else(|| vec![0; whole]);
        let start = buf.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Memory::Long(Long { buf, bytes: start..start + len, home: self.clone() })
    }

    /// Keeps a buffer, and as many of the latest others as there is room for. Nobody waits for the
    /// lock.
    fn put(&self, buf: Vec<u8>) {
        let Ok(mut spares) = self.0.try_lock() else { return };
        spares.push(buf);
        let mut room = MOST_BYTES;
        let fits = |spare: &&Vec<u8>| {
            let left = room.checked_sub(spare.len());
            room = left.unwrap_or(0);
            left.is_some()
        };
        let kept = spares.iter().rev().take_while(fits).count();
        let oldest = spares.len() - kept;
        let dropped: Vec<_> = spares.drain(..oldest).collect();
        // The kernel takes them back without the lock.
        drop(spares);
        drop(dropped);
    }
}

/// A buffer for a result.
#[derive(Debug)]
pub(crate) enum Memory {
    Short(Vec<u8>),
    Long(Long),
}

impl Memory {
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Short(buf) => buf,
            Memory::Long(Long { buf, bytes, .. }) => &mut buf[bytes.clone()],
        }
    }

    /// Returns the content. A long buffer becomes spare when the last part of it is dropped.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self {
            Memory::Short(buf) => buf.into(),
            Memory::Long(long) => Bytes::from_owner(long),
        }
    }
}

/// A buffer that becomes spare when it is dropped.
#[derive(Debug)]
pub(crate) struct Long {
    buf: Vec<u8>,
    /// Where the result is.
    bytes: Range<usize>,
    home: Spares,
}

impl AsRef<[u8]> for Long {
    fn as_ref(&self) -> &[u8] {
        &self.buf[self.bytes.clone()]
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        self.home.put(std::mem::take(&mut self.buf));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(spares: &Spares) -> Vec<usize> {
        spares.0.lock().unwrap().iter().map(|spare| spare.len() - PAGE_BYTES).collect()
    }

    #[test]
    fn long_buffer_is_used_again_once_no_part_of_its_result_is_left() {
        let spares = Spares::default();
        let mut first = spares.take(100_000);
        first.as_mut().fill(1);
        let whole = first.into_bytes();
        let part = whole.slice(99_999..);
        drop(whole);
        assert_eq!(kept(&spares), []);
        assert_eq!(part, [1][..]);
        drop(part);
        assert_eq!(kept(&spares), [100_000]);
        assert_eq!(spares.take(90_000).into_bytes(), vec![1; 90_000]);
        assert_eq!(kept(&spares), [100_000]);
    }

    #[test]
    fn spares_have_a_limit_and_serve_no_result_that_is_much_shorter() {
        let spares = Spares::default();
        drop([1, 20, 20].map(|part| spares.take(KEPT_BYTES / part)));
        assert_eq!(kept(&spares), [KEPT_BYTES]);
        drop([0; 20].map(|_| spares.take(MOST_BYTES / 4)));
        assert_eq!(kept(&spares), [MOST_BYTES / 4; 3], "the latest");
        let shorter = spares.take(MOST_BYTES / 4 * 4 / 5 - PAGE_BYTES);
        assert_eq!(kept(&spares).len(), 3);
        drop(shorter);
        assert_eq!(kept(&spares).len(), 4);
        drop(spares.take(MOST_BYTES));
        assert_eq!(kept(&spares), [], "it is longer than the limit");
    }
}
