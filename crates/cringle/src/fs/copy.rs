//! Copying within the kernel, and by hand where the kernel does not.

use super::perform::perform;
use super::{File, Metadata, OpenOptions};
use crate::driver::Op;
use crate::driver::syscall::Syscall;
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Bytes for one call of the kernel: a copied file system block may be shared instead of copied, the
/// more of them the better; but a cancel is noticed, and a thread of the pool given back, in between.
pub(crate) const RANGE_BYTES: u32 = 64 << 20;
/// Bytes for one read and write by hand.
const BUFFER_BYTES: usize = 256 << 10;

/// Copies a file's bytes and permissions; how many bytes. Within the kernel (`copy_file_range`: on some
/// file systems nothing is copied but references), in parts of 64 MiB on the pool, else by reading and
/// writing.
///
/// ```
/// use cringle::fs;
///
/// # let directory = tempfile::tempdir()?;
/// # let (from, to) = (directory.path().join("from"), directory.path().join("to"));
/// cringle::run(|| -> std::io::Result<()> {
///     fs::write(&from, "text")?;
///     assert_eq!(fs::copy(&from, &to)?, 4);
///     Ok(())
/// })
/// # ?; Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// As `std::fs::copy`; and [`Cancelled`](crate::Cancelled), with a part of it copied.
pub fn copy<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<u64> {
    let reader = File::open(from)?;
    let known = reader.metadata()?;
    if !known.is_file() {
        return Err(not_regular());
    }
    let mode = known.permissions().mode();
    let mut options = OpenOptions::new();
    let writer = options.mode(mode).write(true).create(true).truncate(true).open(to)?;
    if writer.metadata()?.is_file() {
        writer.set_permissions(known.permissions())?;
    }
    copy_all(reader, writer, &known)
}

/// `std`'s refusal, in its words: the null device is no regular file, and is asked for no byte.
fn not_regular() -> io::Error {
    let refused = std::fs::copy("/dev/null", "/dev/null").err();
    let refused = refused.filter(|e| e.kind() == io::ErrorKind::InvalidInput);
    refused.unwrap_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn copy_all(mut reader: File, mut writer: File, known: &Metadata) -> io::Result<u64> {
    let mut done = 0;
    // The files of /proc say that they have no bytes, and only a read tells otherwise.
    while known.len() > 0 {
        match copy_range(&reader, done, &writer, done, RANGE_BYTES as usize) {
            Ok(0) if done == 0 => break,
            Ok(0) => return Ok(done),
            Ok(count) => done += count as u64,
            Err(e) if done == 0 && is_refused(&e) => break,
            Err(e) => return Err(e),
        }
    }
    // Nothing was copied, and both cursors are at the beginning.
    let mut buf = vec![0; BUFFER_BYTES];
    loop {
        let count = match reader.read(&mut buf) {
            Ok(0) => return Ok(done),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            count => count?,
        };
        writer.write_all(&buf[..count])?;
        done += count as u64;
    }
}

/// Whether the kernel copies nothing between these two files, and reading and writing may.
pub(crate) fn is_refused(e: &io::Error) -> bool {
    use libc::{EBADF, EINVAL, ENOSYS, EOPNOTSUPP, EOVERFLOW, EPERM, EXDEV};
    let refusals = [EBADF, EINVAL, ENOSYS, EOPNOTSUPP, EOVERFLOW, EPERM, EXDEV];
    e.raw_os_error().is_some_and(|code| refusals.contains(&code))
}

/// Copies bytes from one file to another within the kernel (`copy_file_range`); how many, 0 at the end.
/// The cursors stay. It is done on the pool, in one call.
///
/// ```
/// use cringle::fs::{self, File};
///
/// # let directory = tempfile::tempdir()?;
/// # let (from, to) = (directory.path().join("from"), directory.path().join("to"));
/// cringle::run(|| -> std::io::Result<()> {
///     fs::write(&from, "a rope")?;
///     let copied = fs::copy_range(&File::open(&from)?, 2, &File::create(&to)?, 0, 4)?;
///     assert_eq!((copied, fs::read(&to)?), (4, b"rope".to_vec()));
///     Ok(())
/// })
/// # ?; Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// What `copy_file_range` says: `CrossesDevices` or `InvalidInput` where the file systems cannot;
/// [`Cancelled`](crate::Cancelled), before it begins.
pub fn copy_range(
    from: &File,
    from_offset: u64,
    to: &File,
    to_offset: u64,
    len: usize,
) -> io::Result<usize> {
    let mut offsets = [offset(from_offset)?, offset(to_offset)?];
    let len = len.min(crate::sys::MAX_RW_BYTES) as u32;
    let (from, to) = (from.fd(), to.fd());
    let call = Syscall::CopyRange { from, to, offsets: &mut offsets, len };
    // SAFETY: I1. The offsets live in this frame.
    unsafe { perform(Op::Syscall(call)) }
}

impl File {
    /// Has this file share another's bytes until either is written: nothing is copied (`FICLONE`; btrfs,
    /// XFS, bcachefs).
    ///
    /// ```
    /// use cringle::fs::{self, File};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    /// fs::write(&from, "text")?;
    /// match File::create(&to)?.reflink_from(&File::open(&from)?) {
    ///     Ok(()) => assert_eq!(fs::read(&to)?, b"text"),
    ///     Err(e) => println!("this file system copies: {e}"),
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported`, `CrossesDevices` or `InvalidInput` where the file system cannot;
    /// [`Cancelled`](crate::Cancelled).
    pub fn reflink_from(&self, source: &File) -> io::Result<()> {
        self.reflink_range_from(source, 0, 0, 0)
    }

    /// The same for `len` bytes (0: all to the end) from `source_offset`, to be at `offset` here
    /// (`FICLONERANGE`). They are whole blocks of the file system.
    ///
    /// # Errors
    ///
    /// As [`reflink_from`](File::reflink_from); `InvalidInput` for parts of blocks.
    pub fn reflink_range_from(
        &self,
        source: &File,
        source_offset: u64,
        len: u64,
        offset: u64,
    ) -> io::Result<()> {
        let range = libc::file_clone_range {
            src_fd: source.fd().into(),
            src_offset: source_offset,
            src_length: len,
            dest_offset: offset,
        };
        let call = Syscall::Clone { to: self.fd(), range: &range };
        // SAFETY: I1. The range lives in this frame.
        unsafe { perform(Op::Syscall(call)) }.map(drop)
    }
}

pub(super) fn offset(offset: u64) -> io::Result<i64> {
    i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}
