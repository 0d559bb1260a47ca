//! The file that is read: an existing one, or one that is created for the run.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file of random bytes, which is removed when the value is dropped.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates the file, syncs it, and leaves it in the page cache.
    pub fn new(directory: &Path, bytes: u64) -> io::Result<Scratch> {
        // Some libraries take absolute paths alone.
        let directory = directory.canonicalize()?;
        let path = directory.join(format!("cringle-bench-{}.dat", std::process::id()));
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let scratch = Scratch { path };
        let mut rng = fastrand::Rng::with_seed(1);
        let mut chunk = vec![0; 1 << 20];
        let mut left = bytes;
        while left > 0 {
            rng.fill(&mut chunk);
            let take = left.min(chunk.len() as u64);
            file.write_all(&chunk[..take as usize])?;
            left -= take;
        }
        file.sync_all()?;
        Ok(scratch)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file that cannot be removed is left behind.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Opens the file for reading, with `O_DIRECT` if `direct`.
pub fn open(path: &Path, direct: bool) -> io::Result<File> {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Returns the size of a file or block device in bytes.
pub fn size_of(path: &Path) -> io::Result<u64> {
    File::open(path)?.seek(SeekFrom::End(0))
}

/// Reads the whole file into the page cache.
pub fn warm(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut chunk = vec![0; 1 << 20];
    while file.read(&mut chunk)? > 0 {}
    Ok(())
}

/// Returns whether the file is on tmpfs, where a kernel thread performs every read of a ring, even
/// if it is cached. Such reads do not show the overhead of a runtime.
pub fn is_on_tmpfs(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let mut stat = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the pointer is to a structure that lives for the call; zeroes are valid in it.
    let stat = unsafe {
        if libc::fstatfs(file.as_raw_fd(), stat.as_mut_ptr()) < 0 {
            return Err(io::Error::last_os_error());
        }
        stat.assume_init()
    };
    Ok(stat.f_type == libc::TMPFS_MAGIC)
}
