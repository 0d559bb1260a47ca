//! The file that is read: a given one, or one made for the run and removed after it.

use crate::plan::Rng;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file of random bytes; removed when the value is dropped.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Written to the disk, and left in the page cache.
    pub fn new(directory: &Path, bytes: u64) -> io::Result<Scratch> {
        let path = directory.join(format!("cringle-bench-{}.dat", std::process::id()));
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let scratch = Scratch { path };
        let mut rng = Rng(1);
        let mut left = bytes;
        while left > 0 {
            let chunk: Vec<u8> = (0..1 << 17).flat_map(|_| rng.draw().to_ne_bytes()).collect();
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
        // Nothing more can be done about a file that is gone or cannot be removed.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Opens for reading, past the page cache if `direct`.
pub fn open(path: &Path, direct: bool) -> io::Result<File> {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// The size of a file or a block device in bytes.
pub fn size_of(path: &Path) -> io::Result<u64> {
    File::open(path)?.seek(SeekFrom::End(0))
}

/// Reads all of it, so that the page cache has it.
pub fn warm(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut chunk = vec![0; 1 << 20];
    while file.read(&mut chunk)? > 0 {}
    Ok(())
}

/// Whether the file lies where every read of a ring is handed to a kernel thread, warm or not:
/// such reads say nothing of the overhead of a runtime.
pub fn is_no_inline_floor(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let mut stat = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the call fills the structure, of which all-zero is a valid value.
    let stat = unsafe {
        if libc::fstatfs(file.as_raw_fd(), stat.as_mut_ptr()) < 0 {
            return Err(io::Error::last_os_error());
        }
        stat.assume_init()
    };
    Ok(stat.f_type == libc::TMPFS_MAGIC)
}
