//! A file's space on its disk and in the page cache. The ring does it; the pool finds holes.

use super::File;
use super::copy::offset as checked;
use super::perform::perform;
use crate::driver::Op;
use crate::driver::syscall::Syscall;
use std::io;

/// What the page cache is told of the reads and writes to come: `posix_fadvise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Nothing in particular.
    Normal,
    /// From the front to the back: read further ahead.
    Sequential,
    /// Anywhere: do not read ahead.
    Random,
    /// Soon: begin to read.
    WillNeed,
    /// No more: forget what is cached and written out.
    DontNeed,
    /// Once (it has an effect since Linux 6.3).
    NoReuse,
}

impl File {
    /// Sees to it that `len` bytes from `offset` have a place on the disk; the file grows if they end
    /// behind its end. Then writes there do not find the disk full.
    ///
    /// ```
    /// use cringle::fs::File;
    /// use std::os::unix::fs::MetadataExt;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("file");
    /// cringle::run(|| -> std::io::Result<()> {
    ///     let file = File::create_new(&path)?;
    ///     if let Err(e) = file.allocate(0, 1 << 20) {
    ///         println!("this file system cannot: {e}");
    ///         return Ok(());
    ///     }
    ///     assert_eq!(file.metadata()?.len(), 1 << 20);
    ///     Ok(())
    /// })
    /// # ?; Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What `fallocate` says: `StorageFull`, `Unsupported`; and [`Cancelled`](crate::Cancelled).
    pub fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate(0, offset, len)
    }

    /// Gives the disk space of `len` bytes from `offset` back; they read as zeros. The size stays.
    ///
    /// ```
    /// use cringle::fs::{self, File};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("file");
    /// fs::write(&path, [1; 8192])?;
    /// let file = File::options().write(true).open(&path)?;
    /// if file.punch_hole(0, 4096).is_ok() {
    ///     assert_eq!(fs::read(&path)?[..4096], [0; 4096]);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`allocate`](File::allocate).
    pub fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, len)
    }

    /// `fallocate` with a mode of one's own (`libc::FALLOC_FL_…`).
    ///
    /// # Errors
    ///
    /// As [`allocate`](File::allocate).
    pub fn fallocate(&self, mode: i32, offset: u64, len: u64) -> io::Result<()> {
        let fd = self.fd();
        // SAFETY: the op has no pointers.
        unsafe { perform(Op::Allocate { fd, mode, offset, len }) }.map(drop)
    }

    /// Tells the page cache what will be done with `len` bytes from `offset` (0: all to the end).
    ///
    /// ```
    /// use cringle::fs::{Advice, File};
    ///
    /// cringle::run(|| File::open("/proc/self/exe")?.advise(Advice::WillNeed, 0, 0))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What `posix_fadvise` says: `ESPIPE` for a pipe; and [`Cancelled`](crate::Cancelled).
    pub fn advise(&self, advice: Advice, offset: u64, len: u64) -> io::Result<()> {
        let advice = match advice {
            Advice::Normal => libc::POSIX_FADV_NORMAL,
            Advice::Sequential => libc::POSIX_FADV_SEQUENTIAL,
            Advice::Random => libc::POSIX_FADV_RANDOM,
            Advice::WillNeed => libc::POSIX_FADV_WILLNEED,
            Advice::DontNeed => libc::POSIX_FADV_DONTNEED,
            Advice::NoReuse => libc::POSIX_FADV_NOREUSE,
        };
        checked(len)?;
        // SAFETY: the op has no pointers.
        unsafe { perform(Op::Advise { fd: self.fd(), advice, offset, len }) }.map(drop)
    }

    /// Writes `len` bytes from `offset` (0: all to the end) out of the page cache and waits for it:
    /// `sync_file_range` with all its flags. It writes neither the file's size nor where its blocks are,
    /// nor does it flush the disk's cache: it is no [`sync_data`](File::sync_data), it makes that short.
    ///
    /// ```
    /// use cringle::fs::File;
    /// use std::io::Write;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("file");
    /// cringle::run(|| -> std::io::Result<()> {
    ///     let mut file = File::create(&path)?;
    ///     for part in 0..4 {
    ///         file.write_all(&[0; 1 << 16])?;
    ///         file.sync_range(part << 16, 1 << 16)?;
    ///     }
    ///     file.sync_data()
    /// })
    /// # ?; Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What `sync_file_range` says; and [`Cancelled`](crate::Cancelled).
    pub fn sync_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.sync_file_range(
            libc::SYNC_FILE_RANGE_WAIT_BEFORE
                | libc::SYNC_FILE_RANGE_WRITE
                | libc::SYNC_FILE_RANGE_WAIT_AFTER,
            offset,
            len,
        )
    }

    /// `sync_file_range` with flags of one's own (`libc::SYNC_FILE_RANGE_…`): `…_WRITE` alone begins
    /// to write and does not wait.
    ///
    /// # Errors
    ///
    /// As [`sync_range`](File::sync_range).
    pub fn sync_file_range(&self, flags: u32, offset: u64, len: u64) -> io::Result<()> {
        let fd = self.fd();
        // SAFETY: the op has no pointers.
        unsafe { perform(Op::SyncRange { fd, flags, offset, len }) }.map(drop)
    }

    /// Where the next data is, at `offset` or after it (`SEEK_DATA`); `None` if only a hole follows. The
    /// cursor stays. A file system that keeps no account of holes says that all is data.
    ///
    /// ```
    /// use cringle::fs::File;
    /// use std::os::unix::fs::FileExt;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("file");
    /// cringle::run(|| -> std::io::Result<()> {
    ///     let file = File::create_new(&path)?;
    ///     file.write_all_at(b"far out", 1 << 20)?;
    ///     assert_eq!(file.seek_hole(1 << 20)?, Some((1 << 20) + 7));
    ///     assert!(file.seek_data(0)?.is_some_and(|at| at <= 1 << 20));
    ///     assert_eq!(file.seek_data(1 << 30)?, None);
    ///     Ok(())
    /// })
    /// # ?; Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What `lseek` says; and [`Cancelled`](crate::Cancelled).
    pub fn seek_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.find(libc::SEEK_DATA, offset)
    }

    /// Where the next hole is, at `offset` or after it (`SEEK_HOLE`); the end of the file is one.
    /// `None` behind it. The cursor stays.
    ///
    /// # Errors
    ///
    /// As [`seek_data`](File::seek_data).
    pub fn seek_hole(&self, offset: u64) -> io::Result<Option<u64>> {
        self.find(libc::SEEK_HOLE, offset)
    }

    /// The same file with a cursor of its own, to move where others may use this one's.
    fn open_again(&self) -> io::Result<File> {
        File::open(format!("/proc/self/fd/{}", self.fd()))
    }

    fn find(&self, whence: i32, offset: u64) -> io::Result<Option<u64>> {
        use std::io::Seek;
        if self.is_seekable()
            && self.uses_kernels_cursor()
            && let Ok(file) = self.open_again()
        {
            return file.find(whence, offset);
        }
        let mut at = checked(offset)?;
        // The kernel moves the cursor with it (I11).
        let _cursor = self.cursor().lock()?;
        let cursor = self.std().stream_position()?;
        let call = Syscall::Seek { fd: self.fd(), whence, offset: &mut at };
        // SAFETY: I1. The offset lives in this frame.
        let found = unsafe { perform(Op::Syscall(call)) };
        self.std().seek(io::SeekFrom::Start(cursor))?;
        match found {
            Ok(_) => Ok(Some(at as u64)),
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            Err(e) => Err(e),
        }
    }
}
