//! Why the kernel refused an `O_DIRECT` request.

use crate::sys;
use std::io;
use std::os::fd::RawFd;

/// Says which of address, length and offset is off the file's alignment. Another error, or a file
/// that is not opened for direct I/O, is left as it is.
#[cold]
pub(super) fn explain(
    fd: RawFd,
    address: usize,
    len: usize,
    offset: u64,
    e: io::Error,
) -> io::Error {
    if e.raw_os_error() != Some(libc::EINVAL) || sys::status_flags(fd) & libc::O_DIRECT == 0 {
        return e;
    }
    // Where the kernel does not tell, a logical block of 512 bytes is the least a disk has.
    let (memory, on_disk) = sys::direct_alignment(fd).unwrap_or((512, 512));
    let mut off = Vec::new();
    if !address.is_multiple_of(memory as usize) {
        off.push(format!("the buffer's address {address:#x} is not a multiple of {memory}"));
    }
    if !len.is_multiple_of(on_disk as usize) {
        off.push(format!("the length {len} is not a multiple of {on_disk}"));
    }
    if !offset.is_multiple_of(u64::from(on_disk)) {
        off.push(format!("the offset {offset} is not a multiple of {on_disk}"));
    }
    if off.is_empty() {
        return e;
    }
    let text = format!(
        "the file is opened with O_DIRECT, and {}: use a block::AlignedBuf, whole blocks, and \
         offsets of whole blocks",
        off.join(", and ")
    );
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// The same for several buffers: the first one that is off is named.
#[cold]
pub(super) fn explain_slices<S: std::ops::Deref<Target = [u8]>>(
    fd: RawFd,
    slices: &[S],
    offset: u64,
    e: io::Error,
) -> io::Error {
    let (memory, on_disk) = sys::direct_alignment(fd).unwrap_or((512, 512));
    let is_off = |slice: &&S| {
        let address = slice.as_ptr() as usize;
        !address.is_multiple_of(memory as usize) || !slice.len().is_multiple_of(on_disk as usize)
    };
    let (address, len) =
        slices.iter().find(is_off).map_or((0, 0), |slice| (slice.as_ptr() as usize, slice.len()));
    explain(fd, address, len, offset, e)
}
