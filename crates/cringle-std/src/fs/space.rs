//! A file's space on the disk and in the page cache. The ring performs the ops, except that a
//! thread of the pool looks for holes.

use super::File;
use super::copy::offset as checked;
use super::file::Promises;
use super::perform::perform;
use cringle_driver::op::FileRange;
use cringle_driver::syscall::Syscall;
use cringle_driver::{FileOp, Op};
use std::io;

/// The expected pattern of reads and writes, for [`File::advise`] (`posix_fadvise`).
///
/// ```
/// use cringle::fs::{Advice, File};
///
/// File::open("/proc/self/exe")?.advise(Advice::Sequential, 0, 0)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// No particular pattern.
    Normal,
    /// Sequential: the kernel reads further ahead.
    Sequential,
    /// Random: the kernel does not read ahead.
    Random,
    /// Needed soon: the kernel starts to read.
    WillNeed,
    /// Not needed: the kernel drops cached pages that are written out.
    DontNeed,
    /// Accessed once. It has an effect on Linux 6.3 and later.
    NoReuse,
}

impl File {
    /// Allocates disk space for `len` bytes from `offset`, so that writes there cannot fail with
    /// `StorageFull`. The file grows if the range ends beyond its end.
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
    /// # ?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of `fallocate(2)`, such as `StorageFull` and `Unsupported`; and
    /// [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate(0, offset, len)
    }

    /// Frees the disk space of `len` bytes from `offset`, which then read as zeros. The file's size
    /// does not change.
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
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`allocate`](File::allocate).
    pub fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, len)
    }

    /// Calls `fallocate` with the given mode (`libc::FALLOC_FL_…`).
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let file = cringle::fs::File::create(directory.path().join("file"))?;
    /// // Allocates space without changing the size.
    /// if file.fallocate(libc::FALLOC_FL_KEEP_SIZE, 0, 4096).is_ok() {
    ///     assert_eq!(file.metadata()?.len(), 0);
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`allocate`](File::allocate).
    pub fn fallocate(&self, mode: i32, offset: u64, len: u64) -> io::Result<()> {
        let _blocks = self.hold_all_blocks()?;
        let (fd, range) = (self.fd(), FileRange { offset, len });
        // SAFETY: I1. The range outlives the call.
        unsafe { perform(Op::File(FileOp::Allocate { fd, mode, range: &range })) }.map(drop)
    }

    /// Announces how `len` bytes from `offset` will be accessed. A `len` of 0 means up to the end.
    ///
    /// ```
    /// use cringle::fs::{Advice, File};
    ///
    /// cringle::run(|| File::open("/proc/self/exe")?.advise(Advice::WillNeed, 0, 0))?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of `posix_fadvise(2)`, such as `ESPIPE` for a pipe; and
    /// [`Cancelled`](cringle_core::cancelled::Cancelled).
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
        let (fd, range) = (self.fd(), FileRange { offset, len });
        // SAFETY: I1. The range outlives the call.
        unsafe { perform(Op::File(FileOp::Advise { fd, advice, range: &range })) }.map(drop)
    }

    /// Writes the cached pages of `len` bytes from `offset` to the disk, and waits
    /// (`sync_file_range` with all of its flags). A `len` of 0 means up to the end.
    ///
    /// It writes no metadata and does not flush the disk's cache, so it does not replace
    /// [`sync_data`](File::sync_data); it leaves less for it to do. If it fails, so does each later
    /// sync through this handle and its clones.
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
    /// # ?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of `sync_file_range(2)`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn sync_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.sync_file_range(
            libc::SYNC_FILE_RANGE_WAIT_BEFORE
                | libc::SYNC_FILE_RANGE_WRITE
                | libc::SYNC_FILE_RANGE_WAIT_AFTER,
            offset,
            len,
        )
    }

    /// Calls `sync_file_range` with the given flags (`libc::SYNC_FILE_RANGE_…`). With `…_WRITE`
    /// alone it starts to write and does not wait.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let file = cringle::fs::File::create(directory.path().join("file"))?;
    /// file.sync_file_range(libc::SYNC_FILE_RANGE_WRITE, 0, 0)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`sync_range`](File::sync_range).
    pub fn sync_file_range(&self, flags: u32, offset: u64, len: u64) -> io::Result<()> {
        let range = FileRange { offset, len };
        let op = Op::File(FileOp::SyncRange { fd: self.fd(), flags, range: &range });
        // SAFETY: I1. The range outlives the call.
        self.report_by(Promises::Nothing, || unsafe { perform(op) }.map(drop))
    }

    /// Returns the offset of the next data at or after `offset` (`SEEK_DATA`), or `None` if only a
    /// hole follows. The cursor does not move. A file system that does not track holes reports all
    /// bytes as data.
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
    /// # ?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of `lseek(2)`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn seek_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.find(libc::SEEK_DATA, offset)
    }

    /// Returns the offset of the next hole at or after `offset` (`SEEK_HOLE`). The end of the file
    /// counts as a hole. `None` if `offset` is at or beyond the end. The cursor does not move.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("file");
    /// cringle::fs::write(&path, "data")?;
    /// assert_eq!(cringle::fs::File::open(&path)?.seek_hole(0)?, Some(4));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`seek_data`](File::seek_data).
    pub fn seek_hole(&self, offset: u64) -> io::Result<Option<u64>> {
        self.find(libc::SEEK_HOLE, offset)
    }

    /// Opens the same file with a cursor of its own, which may be moved while others use this
    /// one's.
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
        // The call moves the cursor, which is restored under its lock (I11).
        let _cursor = self.cursor().lock()?;
        let cursor = self.std().stream_position()?;
        let call = Syscall::Seek { fd: self.fd(), whence, offset: &mut at };
        // SAFETY: I1. The offset lives in this frame, which is resumed only after the call.
        let found = unsafe { perform(Op::Syscall(call)) };
        self.std().seek(io::SeekFrom::Start(cursor))?;
        match found {
            Ok(_) => Ok(Some(at as u64)),
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            Err(e) => Err(e),
        }
    }
}
