//! Tests what a file system supports by doing each operation once on an open file.

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
/// The alignments to try, from the smallest.
const ALIGNMENTS: [u64; 4] = [512, 1024, 2048, 4096];

/// Creates a file whose content is on disk, and an empty one.
pub(super) fn temporary(directory: &Path) -> io::Result<(File, File)> {
    let full = tempfile::tempfile_in(directory)?;
    full.write_all_at(&[1; BYTES], 0)?;
    full.sync_data()?;
    Ok((full, tempfile::tempfile_in(directory)?))
}

/// Tests reads with `O_DIRECT`, and finds the alignment that they need.
pub(super) fn direct(file: &File) -> (Capability, Option<Alignment>) {
    if let Err(error) = set_direct(file, true) {
        return (refused(&error, "no O_DIRECT here", "O_DIRECT"), None);
    }
    let reported = reported_alignment(file);
    let tried = try_alignments(file);
    let _ = set_direct(file, false);
    match (reported, tried) {
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
    // SAFETY: a system call with no pointers.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    let flags = if on { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT };
    // SAFETY: a system call with no pointers.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the alignments of memory and offset by `STATX_DIOALIGN` (Linux 6.1). Two zeroes mean
/// that the file system refuses direct reads.
fn reported_alignment(file: &File) -> Option<(u64, u64)> {
    let mut stat = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is a C string, and the call writes at most one `statx`, for which all-zero
    // is a valid value; both outlive the call.
    let stat = unsafe {
        let flags = libc::AT_EMPTY_PATH;
        let mask = libc::STATX_DIOALIGN;
        let done = libc::statx(file.as_raw_fd(), c"".as_ptr(), flags, mask, stat.as_mut_ptr());
        (done == 0).then(|| stat.assume_init())?
    };
    let is_reported = stat.stx_mask & libc::STATX_DIOALIGN != 0;
    is_reported.then(|| (u64::from(stat.stx_dio_mem_align), u64::from(stat.stx_dio_offset_align)))
}

/// Returns the smallest alignment of offset and length with which a direct read succeeds.
fn try_alignments(file: &File) -> io::Result<u64> {
    // A mapping starts at a page, which satisfies the strictest device.
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

/// Tests whether a cached read completes without waiting.
pub(super) fn nowait_read(file: &File) -> Capability {
    let mut block = [0u8; BLOCK];
    let part = libc::iovec { iov_base: block.as_mut_ptr().cast(), iov_len: BLOCK };
    // SAFETY: the one iovec describes `block`; both outlive the call.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, 0, libc::RWF_NOWAIT) };
    let lack = "cached reads go through the ring";
    match outcome(read, lack, "NOWAIT reads") {
        Ok(_) => Capability::yes("cached reads complete inline"),
        Err(tried) => tried,
    }
}

/// Tests whether a write to the page cache completes without waiting; it writes the same content
/// again.
pub(super) fn nowait_write(file: &File) -> Capability {
    let mut block = [1u8; BLOCK];
    let part = libc::iovec { iov_base: block.as_mut_ptr().cast(), iov_len: BLOCK };
    // SAFETY: the one iovec describes `block`, which the call only reads; both outlive the call.
    let written = unsafe { libc::pwritev2(file.as_raw_fd(), &part, 1, 0, libc::RWF_NOWAIT) };
    let lack = "the ring hands each buffered write to a kernel thread";
    match outcome(written, lack, "NOWAIT writes") {
        Ok(_) => Capability::yes("the ring completes buffered writes inline"),
        Err(tried) => tried,
    }
}

fn outcome(moved: isize, lack: &str, what: &str) -> Result<(), Capability> {
    if moved >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // The flag is supported; this call would have had to wait.
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

/// Tests whether two files can share blocks.
pub(super) fn reflink(from: &File, to: &File) -> Capability {
    // SAFETY: the argument is a descriptor; no pointers.
    let cloned = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd()) };
    if cloned == 0 {
        return Capability::yes("copies can share blocks");
    }
    refused(&io::Error::last_os_error(), "a copy is written in full", "FICLONE")
}
