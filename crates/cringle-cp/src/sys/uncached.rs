//! Reads and writes at the cursor that leave no pages in the cache.

use rustix::io::{Errno, IoSlice, IoSliceMut, ReadWriteFlags, preadv2, pwritev2, retry_on_intr};
use std::io;
use std::os::fd::BorrowedFd;

/// `RWF_DONTCACHE`, Linux 6.14.
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);
/// Stands for the file's cursor.
const CURSOR: u64 = u64::MAX;

/// Reads past the cache. If the kernel, a filter or the file system refuses that, clears `uncached`
/// and reads as usual.
pub(crate) fn read_uncached(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    uncached: &mut bool,
) -> io::Result<usize> {
    if *uncached {
        let mut call = || preadv2(fd, &mut [IoSliceMut::new(buffer)], CURSOR, DONTCACHE);
        match retry_on_intr(&mut call) {
            Err(refusal) if is_refusal(refusal) => *uncached = false,
            result => return Ok(result?),
        }
    }
    super::read(fd, buffer)
}

/// Writes past the cache; refusals as for reads.
pub(crate) fn write_all_uncached(
    fd: BorrowedFd<'_>,
    mut bytes: &[u8],
    uncached: &mut bool,
) -> io::Result<()> {
    while *uncached && !bytes.is_empty() {
        match retry_on_intr(|| pwritev2(fd, &[IoSlice::new(bytes)], CURSOR, DONTCACHE)) {
            Err(refusal) if is_refusal(refusal) => *uncached = false,
            Ok(0) => return Err(Errno::NOSPC.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(error) => return Err(error.into()),
        }
    }
    super::write_all(fd, bytes)
}

/// If the error has another reason, the usual call finds it, too.
fn is_refusal(error: Errno) -> bool {
    matches!(error, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM)
}
