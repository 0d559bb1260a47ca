//! The page cache: how much of a file is in it, filling it, and emptying it.

use memmap2::MmapOptions;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Longest stretch that is looked at in one piece, and how many pieces of a longer file.
const WINDOW: u64 = 1 << 30;
const SAMPLED_WINDOWS: u64 = 64;
const SAMPLED_WINDOW: u64 = 16 << 20;
/// Pages that are asked for one by one where `mincore` may not answer.
const PROBES: u64 = 1024;

/// Which part of the first `bytes` of the file is in the page cache, from 0 to 1.
///
/// A file up to 4 GiB is looked at whole, a longer one in samples. `mincore` tells the truth
/// only to the owner of a file and to who may write it; others get an answer from reads that
/// do not wait (`RWF_NOWAIT`).
pub fn resident(file: &File, bytes: u64) -> io::Result<f64> {
    if !mincore_is_honest(file)? {
        return Ok(probed(file, bytes));
    }
    let (mut pages, mut present) = (0u64, 0u64);
    for (offset, length) in windows(bytes) {
        let (all, here) = count_window(file, offset, length)?;
        pages += all;
        present += here;
    }
    Ok(if pages == 0 { 1.0 } else { present as f64 / pages as f64 })
}

fn windows(bytes: u64) -> Vec<(u64, u64)> {
    if bytes <= 4 * WINDOW {
        let starts = (0..bytes).step_by(WINDOW as usize);
        return starts.map(|offset| (offset, WINDOW.min(bytes - offset))).collect();
    }
    let step = (bytes - SAMPLED_WINDOW) / (SAMPLED_WINDOWS - 1);
    let start = |i: u64| (i * step) & !(SAMPLED_WINDOW - 1);
    (0..SAMPLED_WINDOWS).map(|i| (start(i), SAMPLED_WINDOW)).collect()
}

fn count_window(file: &File, offset: u64, length: u64) -> io::Result<(u64, u64)> {
    // SAFETY: the mapping is never read or written; `mincore` looks at the kernel's tables,
    // so that a file that changes or shrinks meanwhile does no harm.
    let map = unsafe { MmapOptions::new().offset(offset).len(length as usize).map(file)? };
    let page = page_bytes();
    let mut states = vec![0u8; length.div_ceil(page) as usize];
    // SAFETY: the range is the live mapping `map`, and the vector has one byte for each of its
    // pages.
    let result = unsafe {
        libc::mincore(map.as_ptr().cast_mut().cast(), length as usize, states.as_mut_ptr())
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let present = states.iter().filter(|state| **state & 1 == 1).count();
    Ok((states.len() as u64, present as u64))
}

pub fn page_bytes() -> u64 {
    // SAFETY: `sysconf` has no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// To who is neither owner nor writer `mincore` answers that every page is there.
fn mincore_is_honest(file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    // SAFETY: `geteuid` has no preconditions.
    let me = unsafe { libc::geteuid() };
    if me == 0 || metadata.uid() == me {
        return Ok(true);
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(fs::OpenOptions::new().write(true).open(path).is_ok())
}

fn probed(file: &File, bytes: u64) -> f64 {
    let pages = (bytes / page_bytes()).max(1);
    let step = (pages / PROBES).max(1);
    let asked: Vec<u64> = (0..pages).step_by(step as usize).collect();
    let here = asked.iter().filter(|page| page_is_cached(file, *page * page_bytes())).count();
    here as f64 / asked.len() as f64
}

fn page_is_cached(file: &File, offset: u64) -> bool {
    let mut byte = 0u8;
    let part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: the one iovec points to one writable byte; both outlive the call.
    let result = unsafe {
        libc::preadv2(file.as_raw_fd(), &part, 1, offset as libc::off_t, libc::RWF_NOWAIT)
    };
    result == 1
}

/// Lets the file's clean pages go. Dirty ones are written first.
pub fn evict(file: &File) -> io::Result<()> {
    // A file opened for reading may be synced as well; where it may not, nothing is dirty.
    let _ = file.sync_data();
    // SAFETY: the call touches no memory of this process.
    let code = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// Drops the clean page cache of the whole machine. Only root may.
pub fn evict_everything() -> io::Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "1")
}

/// As [`evict_everything`], with the inodes and directories that the kernel keeps in memory.
pub fn evict_everything_and_inodes() -> io::Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "3")
}

/// Reads the first `bytes` of the file once, so that they are in the page cache.
pub fn warm(file: &File, bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0u8; 1 << 20];
    let mut offset = 0;
    while offset < bytes {
        let want = buffer.len().min((bytes - offset) as usize);
        match file.read_at(&mut buffer[..want], offset)? {
            0 => break,
            n => offset += n as u64,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_just_written_is_in_the_cache() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![1u8; 1 << 20]).unwrap();
        assert_eq!(resident(&file, 1 << 20).unwrap(), 1.0);
        assert!(probed(&file, 1 << 20) > 0.99);
    }

    #[test]
    fn windows_cover_a_short_file_and_sample_a_long_one() {
        assert_eq!(windows(10), [(0, 10)]);
        assert_eq!(windows(WINDOW + 1), [(0, WINDOW), (WINDOW, 1)]);
        let long = windows(100 * WINDOW);
        assert_eq!(long.len() as u64, SAMPLED_WINDOWS);
        assert!(long.iter().all(|(start, length)| start + length <= 100 * WINDOW));
    }
}
