//! Why the kernel refused an `O_DIRECT` request.

use crate::sys;
use std::io;
use std::ops::Deref;
use std::os::fd::RawFd;

/// The least a disk has, in bytes, where the kernel does not tell: a logical block.
const LEAST: (u32, u32) = (512, 512);

/// A direct request of which something is off the file's alignment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Misaligned {
    address: usize,
    len: usize,
    offset: u64,
    /// What addresses, and what lengths and offsets, must be multiples of.
    memory: u32,
    on_disk: u32,
}

impl Misaligned {
    /// What is off in this request, which the kernel refused; `None` if nothing is, or if the file
    /// is not opened for direct I/O.
    #[cold]
    pub(crate) fn find(fd: RawFd, address: usize, len: usize, offset: u64) -> Option<Misaligned> {
        if sys::status_flags(fd) & libc::O_DIRECT == 0 {
            return None;
        }
        let alignment = sys::direct_alignment(fd).unwrap_or(LEAST);
        Misaligned::by(alignment, address, len, offset)
    }

    /// The same for a registered file, of which the ring knows only the number.
    #[cold]
    pub(crate) fn find_registered(address: usize, len: usize, offset: u64) -> Option<Misaligned> {
        Misaligned::by(LEAST, address, len, offset)
    }

    fn by(
        (memory, on_disk): (u32, u32),
        address: usize,
        len: usize,
        offset: u64,
    ) -> Option<Misaligned> {
        let found = Misaligned { address, len, offset, memory, on_disk };
        (found.what_is_off().next().is_some()).then_some(found)
    }

    fn what_is_off(&self) -> impl Iterator<Item = String> {
        let Misaligned { address, len, offset, memory, on_disk } = *self;
        let off = |is: bool, text: &dyn Fn() -> String| is.then(text);
        let address = off(!address.is_multiple_of(memory as usize), &|| {
            format!("the buffer's address {address:#x} is not a multiple of {memory}")
        });
        let len = off(!len.is_multiple_of(on_disk as usize), &|| {
            format!("the length {len} is not a multiple of {on_disk}")
        });
        let offset = off(!offset.is_multiple_of(u64::from(on_disk)), &|| {
            format!("the offset {offset} is not a multiple of {on_disk}")
        });
        [address, len, offset].into_iter().flatten()
    }

    /// As an error, of the kind that the kernel's is, and with the kernel's as its source.
    #[cold]
    pub(crate) fn into_error(self) -> io::Error {
        let kernels = io::Error::from_raw_os_error(libc::EINVAL);
        io::Error::new(kernels.kind(), Refused { why: self, kernels })
    }
}

/// An `io::Error` has either a number or words. This one has the words, and its source the number.
#[derive(Debug)]
struct Refused {
    why: Misaligned,
    kernels: io::Error,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let off: Vec<String> = self.why.what_is_off().collect();
        write!(
            f,
            "the file is opened with O_DIRECT, and {}: use a block::AlignedBuf, whole blocks, and \
             offsets of whole blocks",
            off.join(", and ")
        )
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.kernels)
    }
}

/// Says which of address, length and offset is off the file's alignment; of several buffers, of the
/// first that is. Another error, or a file that is not opened for direct I/O, is left as it is.
#[cold]
pub(super) fn explain<S: Deref<Target = [u8]>>(
    fd: RawFd,
    bufs: &[S],
    offset: u64,
    e: io::Error,
) -> io::Error {
    if e.raw_os_error() != Some(libc::EINVAL) {
        return e;
    }
    let buf_at_fault = |buf: &S| Misaligned::find(fd, buf.as_ptr().addr(), buf.len(), offset);
    bufs.iter().find_map(buf_at_fault).map_or(e, Misaligned::into_error)
}
