//! Each thing done once, on an open file.

use super::{Alignment, Capability};
use memmap2::MmapMut;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

const BYTES: usize = 64 << 10;
const BLOCK: usize = 4096;
/// What a direct read may have to be a multiple of.
const ALIGNMENTS: [u64; 4] = [512, 1024, 2048, 4096];

/// One file with content that is on its disk, and an empty one beside it.
pub(super) fn temporary(directory: &Path) -> io::Result<(File, File)> {
    let full = tempfile::tempfile_in(directory)?;
    full.write_all_at(&[1; BYTES], 0)?;
    full.sync_data()?;
    Ok((full, tempfile::tempfile_in(directory)?))
}

/// Reads with `O_DIRECT`, and what they must be aligned to.
pub(super) fn direct(file: &File) -> (Capability, Option<Alignment>) {
    if let Err(error) = set_direct(file, true) {
        return (refused(&error, "no O_DIRECT here", "O_DIRECT"), None);
    }
    let told = told_alignment(file);
    let tried = try_alignments(file);
    let _ = set_direct(file, false);
    match (told, tried) {
        (Some((0, 0)), _) => (Capability::no("the file system says that it has no O_DIRECT"), None),
        (Some((memory, offset)), _) => {
            let alignment =
                Alignment { memory_bytes: Some(memory), offset_bytes: offset, by: "statx" };
            (Capability::yes("reads past the page cache"), Some(alignment))
        }
        (None, Ok(offset)) => {
            let alignment = Alignment { memory_bytes: None, offset_bytes: offset, by: "tried" };
            (Capability::yes("reads past the page cache"), Some(alignment))
        }
        (None, Err(error)) => {
            (Capability::unknown(format!("no direct read succeeded: {error}")), None)
        }
    }
}

fn set_direct(file: &File, on: bool) -> io::Result<()> {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    let flags = if on { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT };
    // SAFETY: no pointers.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `STATX_DIOALIGN` (Linux 6.1): of the memory and of the offset; two zeroes are a refusal.
fn told_alignment(file: &File) -> Option<(u64, u64)> {
    let mut told = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: an empty path and a whole `statx` for the call to write; zeroes are a valid one.
    let told = unsafe {
        let flags = libc::AT_EMPTY_PATH;
        let mask = libc::STATX_DIOALIGN;
        let done = libc::statx(file.as_raw_fd(), c"".as_ptr(), flags, mask, told.as_mut_ptr());
        (done == 0).then(|| told.assume_init())?
    };
    let knows = told.stx_mask & libc::STATX_DIOALIGN != 0;
    knows.then(|| (u64::from(told.stx_dio_mem_align), u64::from(told.stx_dio_offset_align)))
}

/// The smallest multiple of which a direct read was made.
fn try_alignments(file: &File) -> io::Result<u64> {
    // Starts at a page, as every memory must for the strictest device.
    let mut buffer = MmapMut::map_anon(BLOCK)?;
    let mut last = io::Error::other("nothing was read");
    for bytes in ALIGNMENTS {
        match file.read_at(&mut buffer[..bytes as usize], bytes) {
            Ok(read) if read as u64 == bytes => return Ok(bytes),
            Ok(_) => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}

pub(super) fn nowait_read(file: &File) -> Capability {
    let mut block = [0u8; BLOCK];
    let part = libc::iovec { iov_base: block.as_mut_ptr().cast(), iov_len: BLOCK };
    // SAFETY: the one iovec is of the block; both outlive the call.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, 0, libc::RWF_NOWAIT) };
    let lack = "a cached read is not made at once, but by the ring";
    match outcome(read, lack, "NOWAIT reads") {
        Ok(_) => Capability::yes("a cached read is made at once"),
        Err(tried) => tried,
    }
}

/// Writes what is there already, in the page cache.
pub(super) fn nowait_write(file: &File) -> Capability {
    let mut block = [1u8; BLOCK];
    let part = libc::iovec { iov_base: block.as_mut_ptr().cast(), iov_len: BLOCK };
    // SAFETY: the one iovec is of the block, which is only read; both outlive the call.
    let written = unsafe { libc::pwritev2(file.as_raw_fd(), &part, 1, 0, libc::RWF_NOWAIT) };
    let lack = "the ring hands each buffered write to a kernel thread";
    match outcome(written, lack, "NOWAIT writes") {
        Ok(_) => Capability::yes("the ring makes buffered writes at once"),
        Err(tried) => tried,
    }
}

fn outcome(moved: isize, lack: &str, what: &str) -> Result<(), Capability> {
    if moved >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // It is known, and the kernel would have had to wait this time.
        Some(libc::EAGAIN) => Ok(()),
        _ => Err(refused(&error, lack, what)),
    }
}

fn refused(error: &io::Error, lack: &str, what: &str) -> Capability {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOTTY | libc::EXDEV) => Capability::no(lack),
        _ => Capability::unknown(format!("{what} failed: {error}")),
    }
}

pub(super) fn reflink(from: &File, to: &File) -> Capability {
    // SAFETY: the argument is a descriptor, and no pointer.
    let cloned = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd()) };
    if cloned == 0 {
        return Capability::yes("copies can share their blocks");
    }
    refused(&io::Error::last_os_error(), "a copy is written in full", "FICLONE")
}
