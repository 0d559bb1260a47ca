//! Explains why the kernel refused an `O_DIRECT` request: the error names the address, length or
//! offset that is not aligned.

use std::io;
use std::ops::Deref;
use std::os::fd::RawFd;

/// The alignment `(memory, offset)` in bytes that is assumed where the kernel does not report one:
/// the smallest logical block of a disk.
const MIN_ALIGNMENT: (u32, u32) = (512, 512);

/// A direct request that violates the file's alignment.
#[derive(Clone, Copy, Debug)]
pub struct Misaligned {
    address: usize,
    len: usize,
    offset: u64,
    /// The number of bytes that the address must be a multiple of.
    memory: u32,
    /// The number of bytes that the length and the offset must be multiples of.
    on_disk: u32,
}

impl Misaligned {
    /// Finds the misalignment of a request that the kernel refused. `None` if the request is
    /// aligned, or if the file is not opened for direct I/O.
    #[cold]
    pub fn find(fd: RawFd, address: usize, len: usize, offset: u64) -> Option<Misaligned> {
        if super::status_flags(fd) & libc::O_DIRECT == 0 {
            return None;
        }
        let (memory, on_disk) = super::direct_alignment(fd).unwrap_or(MIN_ALIGNMENT);
        let found = Misaligned { address, len, offset, memory, on_disk };
        (found.violations().next().is_some()).then_some(found)
    }

    fn violations(&self) -> impl Iterator<Item = String> {
        let Misaligned { address, len, offset, memory, on_disk } = *self;
        let unless = |is_aligned: bool, text: &dyn Fn() -> String| (!is_aligned).then(text);
        let address = unless(address.is_multiple_of(memory as usize), &|| {
            format!("the buffer's address {address:#x} is not a multiple of {memory}")
        });
        let len = unless(len.is_multiple_of(on_disk as usize), &|| {
            format!("the length {len} is not a multiple of {on_disk}")
        });
        let offset = unless(offset.is_multiple_of(u64::from(on_disk)), &|| {
            format!("the offset {offset} is not a multiple of {on_disk}")
        });
        [address, len, offset].into_iter().flatten()
    }

    /// Converts it to an error of the kernel's kind, with the kernel's error as its source.
    #[cold]
    pub fn into_error(self) -> io::Error {
        let source = io::Error::from_raw_os_error(libc::EINVAL);
        io::Error::new(source.kind(), Refused { why: self, source })
    }
}

/// The custom error. An `io::Error` has either a message or an `errno`; this one has the message,
/// and its source the `errno`.
#[derive(Debug)]
struct Refused {
    why: Misaligned,
    source: io::Error,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let violations: Vec<String> = self.why.violations().collect();
        write!(
            f,
            "the file is opened with O_DIRECT, and {}: use a block::AlignedBuf, whole blocks, and \
             offsets of whole blocks",
            violations.join(", and ")
        )
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Replaces `EINVAL` by an error that says which of address, length and offset is not aligned, for
/// the first misaligned buffer. Returns other errors, and errors of files that are not opened for
/// direct I/O, unchanged.
#[cold]
pub fn explain<S: Deref<Target = [u8]>>(
    fd: RawFd,
    bufs: &[S],
    offset: u64,
    e: io::Error,
) -> io::Error {
    if e.raw_os_error() != Some(libc::EINVAL) {
        return e;
    }
    let find = |buf: &S| Misaligned::find(fd, buf.as_ptr().addr(), buf.len(), offset);
    bufs.iter().find_map(find).map_or(e, Misaligned::into_error)
}
