//! Tests what a file system supports by doing each operation once on an open file.

use super::{Alignment, Capability};
use memmap2::MmapMut;
use rustix::fs::{self, AtFlags, OFlags, StatxFlags};
use rustix::io::{Errno, IoSlice, IoSliceMut, ReadWriteFlags, preadv2, pwritev2};
use std::fs::File;
use std::io;
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
    let mut flags = fs::fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, on);
    Ok(fs::fcntl_setfl(file, flags)?)
}

/// Returns the alignments of memory and offset by `STATX_DIOALIGN` (Linux 6.1). Two zeroes mean
/// that the file system refuses direct reads.
fn reported_alignment(file: &File) -> Option<(u64, u64)> {
    let stat = fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let is_reported = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
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
    let mut block = [0; BLOCK];
    match preadv2(file, &mut [IoSliceMut::new(&mut block)], 0, ReadWriteFlags::NOWAIT) {
        // `EAGAIN`: the flag is supported; this call would have had to wait.
        Ok(_) | Err(Errno::AGAIN) => Capability::yes("cached reads complete inline"),
        Err(error) => refused(&error.into(), "cached reads go through the ring", "NOWAIT reads"),
    }
}

/// Tests whether a write to the page cache completes without waiting; it writes the same content
/// again.
pub(super) fn nowait_write(file: &File) -> Capability {
    let lack = "the ring hands each buffered write to a kernel thread";
    match pwritev2(file, &[IoSlice::new(&[1; BLOCK])], 0, ReadWriteFlags::NOWAIT) {
        Ok(_) | Err(Errno::AGAIN) => Capability::yes("the ring completes buffered writes inline"),
        Err(error) => refused(&error.into(), lack, "NOWAIT writes"),
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
    match fs::ioctl_ficlone(to, from) {
        Ok(()) => Capability::yes("copies can share blocks"),
        Err(error) => refused(&error.into(), "a copy is written in full", "FICLONE"),
    }
}
