//! The page cache: measures how much of a file is in it, fills it, and empties it.

use memmap2::MmapOptions;
use rustix::fs::{Advice, fadvise};
use rustix::io::{IoSliceMut, ReadWriteFlags, preadv2};
use rustix::process::geteuid;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Bytes that one call of `mincore` covers.
const WINDOW: u64 = 1 << 30;
/// The number and the size of the samples of a large file.
const SAMPLED_WINDOWS: u64 = 64;
const SAMPLED_WINDOW: u64 = 16 << 20;
/// The number of pages that are read if `mincore` gives no true answer.
const PROBES: u64 = 1024;
/// The part of a file that may stay in the cache, or outside it, without a remark.
pub const NEGLIGIBLE: f64 = 0.01;

/// Returns the part of the first `bytes` of the file that is in the page cache, from 0 to 1.
///
/// Covers a file of up to 4 GiB completely, and samples a larger one. `mincore` gives a true answer
/// only to the owner of a file and to a process that may write to it; otherwise the answer comes
/// from reads that do not wait (`RWF_NOWAIT`).
pub fn resident(file: &File, bytes: u64) -> io::Result<f64> {
    if !mincore_is_honest(file)? {
        return Ok(probed(file, bytes));
    }
    let (mut pages, mut present) = (0u64, 0u64);
    for (offset, length) in windows(bytes) {
        let (in_window, cached) = count_window(file, offset, length)?;
        pages += in_window;
        present += cached;
    }
    Ok(if pages == 0 { 1.0 } else { present as f64 / pages as f64 })
}

/// Returns the parts of the file to examine, as offsets and lengths.
fn windows(bytes: u64) -> Vec<(u64, u64)> {
    if bytes <= 4 * WINDOW {
        let starts = (0..bytes).step_by(WINDOW as usize);
        return starts.map(|offset| (offset, WINDOW.min(bytes - offset))).collect();
    }
    let step = (bytes - SAMPLED_WINDOW) / (SAMPLED_WINDOWS - 1);
    let start = |i: u64| (i * step) & !(SAMPLED_WINDOW - 1);
    (0..SAMPLED_WINDOWS).map(|i| (start(i), SAMPLED_WINDOW)).collect()
}

/// Returns the number of pages in the window, and how many of them are cached.
fn count_window(file: &File, offset: u64, length: u64) -> io::Result<(u64, u64)> {
    // SAFETY: the mapping is never read or written. `mincore` reads the kernel's tables only, so a
    // file that changes or shrinks meanwhile does no harm.
    let map = unsafe { MmapOptions::new().offset(offset).len(length as usize).map(file)? };
    let page = page_bytes();
    let mut states = vec![0u8; length.div_ceil(page) as usize];
    // SAFETY: the range is that of `map`, which is still mapped, and the vector has one byte for
    // each of its pages.
    let result = unsafe {
        libc::mincore(map.as_ptr().cast_mut().cast(), length as usize, states.as_mut_ptr())
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let present = states.iter().filter(|state| **state & 1 == 1).count();
    Ok((states.len() as u64, present as u64))
}

/// Returns the size of a page of memory.
pub fn page_bytes() -> u64 {
    // Not `rustix::param`, which before Linux 6.4 needs `/proc`.
    // SAFETY: the contract of `sysconf`, which takes no pointers.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

/// Whether `mincore` gives a true answer. To a process that neither owns the file nor may write to
/// it, the kernel reports every page as cached.
fn mincore_is_honest(file: &File) -> io::Result<bool> {
    let user = geteuid();
    if user.is_root() || file.metadata()?.uid() == user.as_raw() {
        return Ok(true);
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(fs::OpenOptions::new().write(true).open(path).is_ok())
}

fn probed(file: &File, bytes: u64) -> f64 {
    let pages = (bytes / page_bytes()).max(1);
    let step = (pages / PROBES).max(1);
    let probes: Vec<u64> = (0..pages).step_by(step as usize).collect();
    let cached = probes.iter().filter(|page| page_is_cached(file, *page * page_bytes())).count();
    cached as f64 / probes.len() as f64
}

fn page_is_cached(file: &File, offset: u64) -> bool {
    let mut byte = [0];
    preadv2(file, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT) == Ok(1)
}

/// Drops the file's pages from the cache, after writing out the dirty ones.
pub fn evict(file: &File) -> io::Result<()> {
    // A file system that refuses to sync a file opened for reading has no dirty pages of it.
    let _ = file.sync_data();
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Drops all clean pages, cached inodes and directory entries of the machine. Needs root.
pub fn evict_everything() -> io::Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "3")
}

/// Reads the first `bytes` of the file into the page cache.
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
    fn a_file_just_written_is_cached() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![1u8; 1 << 20]).unwrap();
        assert_eq!(resident(&file, 1 << 20).unwrap(), 1.0);
        assert!(probed(&file, 1 << 20) > 0.99);
    }

    #[test]
    fn windows_cover_small_files_and_sample_large_ones() {
        assert_eq!(windows(10), [(0, 10)]);
        assert_eq!(windows(WINDOW + 1), [(0, WINDOW), (WINDOW, 1)]);
        let long = windows(100 * WINDOW);
        assert_eq!(long.len() as u64, SAMPLED_WINDOWS);
        assert!(long.iter().all(|(start, length)| start + length <= 100 * WINDOW));
    }
}
