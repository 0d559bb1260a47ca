//! Memory for results.
//!
//! Each page of fresh memory costs a fault: together as long as the copy into it. So [`Spares`]
//! keeps the memory of long results. It is mapped, not allocated: kept buffers between others would
//! prevent an allocator from giving anything back, and an allocator's begin 16 bytes into a page,
//! where some processors (AMD's) copy at a sixth of their speed.

use bytes::Bytes;
use memmap2::MmapMut;
use std::io;
use std::sync::{Arc, Mutex};

/// The length of the shortest buffer that is kept. A process may have 65,530 mappings
/// (`vm.max_map_count`): with 16 GiB of separate results of this length.
const KEPT_BYTES: usize = 256 << 10;
/// The most bytes that are kept.
const MOST_BYTES: usize = 16 << 20;

/// Buffers whose results were dropped, for the next results: the last one is the first that is used
/// again. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spares(Arc<Mutex<Vec<MmapMut>>>);

impl Spares {
    /// Returns a buffer of this length, with any content. At most a fifth of its memory is unused.
    ///
    /// # Errors
    ///
    /// If there is no memory.
    pub(crate) fn take(&self, len: usize) -> io::Result<Memory> {
        if len < KEPT_BYTES {
            let mut buf = Vec::new();
            buf.try_reserve_exact(len)?;
            buf.resize(len, 0);
            return Ok(Memory::Short(buf));
        }
        let fits = |spare: &MmapMut| (len..=len.saturating_add(len / 4)).contains(&spare.len());
        let spare = self.0.try_lock().ok().and_then(|mut spares| {
            let found = spares.iter().rposition(fits)?;
            Some(spares.remove(found))
        });
        let buf = spare.map_or_else(|| MmapMut::map_anon(len), Ok)?;
        Ok(Memory::Long(Long { buf: Some(buf), len, home: self.clone() }))
    }

    /// Keeps a buffer, and as many of the latest others as there is room for. Nobody waits for the
    /// lock.
    fn put(&self, buf: MmapMut) {
        let Ok(mut spares) = self.0.try_lock() else { return };
        spares.push(buf);
        let mut room = MOST_BYTES;
        let fits = |spare: &&MmapMut| {
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
            Memory::Long(Long { buf, len, .. }) => &mut buf.as_mut().expect(NOT_DROPPED)[..*len],
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
    /// `None` only during the drop.
    buf: Option<MmapMut>,
    len: usize,
    home: Spares,
}

const NOT_DROPPED: &str = "the buffer is there until the drop";

impl AsRef<[u8]> for Long {
    fn as_ref(&self) -> &[u8] {
        &self.buf.as_ref().expect(NOT_DROPPED)[..self.len]
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        self.buf.take().into_iter().for_each(|buf| self.home.put(buf));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(spares: &Spares) -> Vec<usize> {
        spares.0.lock().unwrap().iter().map(|spare| spare.len()).collect()
    }

    #[test]
    fn long_buffer_is_used_again_once_no_part_of_its_result_is_left() {
        let spares = Spares::default();
        let mut first = spares.take(400_000).unwrap();
        first.as_mut().fill(1);
        let whole = first.into_bytes();
        let part = whole.slice(399_999..);
        drop(whole);
        assert_eq!(kept(&spares), []);
        assert_eq!(part, [1][..]);
        drop(part);
        assert_eq!(kept(&spares), [400_000]);
        assert_eq!(spares.take(360_000).unwrap().into_bytes(), vec![1; 360_000]);
        assert_eq!(kept(&spares), [400_000]);
    }

    #[test]
    fn spares_have_a_limit_and_serve_no_result_that_is_much_shorter() {
        let spares = Spares::default();
        drop([1, 2, 2].map(|part| spares.take(KEPT_BYTES / part).unwrap()));
        assert_eq!(kept(&spares), [KEPT_BYTES]);
        drop([0; 20].map(|_| spares.take(MOST_BYTES / 4)));
        assert_eq!(kept(&spares), [MOST_BYTES / 4; 4], "the latest");
        let shorter = spares.take(MOST_BYTES / 4 * 4 / 5 - 1).unwrap();
        assert_eq!(kept(&spares).len(), 4);
        drop(shorter);
        assert_eq!(kept(&spares)[3], MOST_BYTES / 4 * 4 / 5 - 1);
        drop(spares.take(MOST_BYTES + 1).unwrap());
        assert_eq!(kept(&spares), [], "it is longer than the limit");
    }

    #[test]
    fn lack_of_memory_is_an_error() {
        assert!(Spares::default().take(1 << 60).is_err());
    }
}
