//! Copying a file within the kernel, or through a buffer where the kernel refuses.

use super::perform::perform;
use super::{File, Metadata, OpenOptions};
use cringle_driver::Op;
use cringle_driver::syscall::Syscall;
use cringle_sys::plainly;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The number of bytes for one `copy_file_range`. Larger calls let a file system share more blocks
/// at once; between two calls a cancel is noticed and the thread of the pool is released.
pub(crate) const RANGE_BYTES: u32 = 64 << 20;
/// The size of the buffer for copies by read and write, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// Copies a file's data and permissions, and returns the number of bytes.
///
/// The kernel copies the data (`copy_file_range`, 64 MiB at a time on a thread of the pool); some
/// file systems share the blocks instead. Where the kernel cannot, the data is read and written.
///
/// # Errors
///
/// As `std::fs::copy`; and [`Cancelled`](cringle_core::cancelled::Cancelled), which may leave a
/// partial copy.
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

/// Returns std's error for a source that is not a regular file. std detects it for the null device
/// before it reads or writes anything.
fn not_regular() -> io::Error {
    let refused = plainly(|| std::fs::copy("/dev/null", "/dev/null")).err();
    let refused = refused.filter(|e| e.kind() == io::ErrorKind::InvalidInput);
    refused.unwrap_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn copy_all(mut reader: File, mut writer: File, known: &Metadata) -> io::Result<u64> {
    let mut done = 0;
    // Files of /proc report a length of 0, and only a read shows their data.
    while known.len() > 0 {
        match copy_range(&reader, done, &writer, done, RANGE_BYTES as usize) {
            Ok(0) if done == 0 => break,
            Ok(0) => return Ok(done),
            Ok(count) => done += count as u64,
            Err(e) if done == 0 && is_refused(&e) => break,
            Err(e) => return Err(e),
        }
    }
    // Nothing was copied, so both cursors are at the start.
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

/// Whether the error of `copy_file_range` means that the kernel cannot copy between these files, so
/// that reading and writing may succeed.
pub(crate) fn is_refused(e: &io::Error) -> bool {
    use libc::{EBADF, EINVAL, ENOSYS, EOPNOTSUPP, EOVERFLOW, EPERM, EXDEV};
    let refusals = [EBADF, EINVAL, ENOSYS, EOPNOTSUPP, EOVERFLOW, EPERM, EXDEV];
    e.raw_os_error().is_some_and(|code| refusals.contains(&code))
}

/// Copies up to `len` bytes from one file to another within the kernel (`copy_file_range`), and
/// returns the number of bytes, 0 at the end of the file. The cursors do not move. A thread of the
/// pool makes the call. Bytes that the kernel refuses to copy because a file was opened with
/// [`Direct::Bounce`](super::Direct) are read and written, at most 256 KiB in a call.
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
/// # ?; std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The errors of `copy_file_range(2)`: `CrossesDevices` or `InvalidInput` if the file systems do
/// not support it; and [`Cancelled`](cringle_core::cancelled::Cancelled), if the fiber was
/// cancelled before the call.
pub fn copy_range(
    from: &File,
    from_offset: u64,
    to: &File,
    to_offset: u64,
    len: usize,
) -> io::Result<usize> {
    let offsets = [offset(from_offset)?, offset(to_offset)?];
    match copy_range_in_kernel(from, to, offsets, len) {
        // The kernel copies only whole blocks between direct files.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) && (from.bounces() || to.bounces()) => {
            copy_range_by_buffer(from, from_offset, to, to_offset, len, e)
        }
        result => result,
    }
}

fn copy_range_in_kernel(
    from: &File,
    to: &File,
    mut offsets: [i64; 2],
    len: usize,
) -> io::Result<usize> {
    let _blocks = to.hold_all_blocks()?;
    let len = len.min(cringle_sys::MAX_RW_BYTES) as u32;
    let (from, target) = (from.fd(), to.fd());
    let call = Syscall::CopyRange { from, to: target, offsets: &mut offsets, len };
    // SAFETY: I1. The offsets live in this frame, which is resumed only after the call.
    to.write_as_opened(|| unsafe { perform(Op::Syscall(call)) })
}

/// Copies one buffer, unless the ranges overlap: the kernel refuses that, too, by `refusal`.
fn copy_range_by_buffer(
    from: &File,
    from_offset: u64,
    to: &File,
    to_offset: u64,
    len: usize,
    refusal: io::Error,
) -> io::Result<usize> {
    let identity = |file: &File| file.metadata().map(|m| (m.dev(), m.ino()));
    if from_offset.abs_diff(to_offset) < len as u64 && identity(from)? == identity(to)? {
        return Err(refusal);
    }
    let mut buf = vec![0; len.min(BUFFER_BYTES)];
    let count = from.read_at(&mut buf, from_offset)?;
    if count == 0 { Ok(0) } else { to.write_at(&buf[..count], to_offset) }
}

impl File {
    /// Makes this file share the blocks of `source` until either is written (`FICLONE`, on btrfs,
    /// XFS and bcachefs). No data is copied.
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
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported`, `CrossesDevices` or `InvalidInput` if the file system does not support it;
    /// and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn reflink_from(&self, source: &File) -> io::Result<()> {
        self.reflink_range_from(source, 0, 0, 0)
    }

    /// Makes a range of this file, from `offset`, share the blocks of `len` bytes of `source` from
    /// `source_offset` (`FICLONERANGE`). A `len` of 0 means up to the end of `source`. Offsets and
    /// length are multiples of the file system's block size.
    ///
    /// ```
    /// use cringle::fs::{self, File};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    /// fs::write(&from, [7; 8192])?;
    /// match File::create(&to)?.reflink_range_from(&File::open(&from)?, 4096, 4096, 0) {
    ///     Ok(()) => assert_eq!(fs::read(&to)?, [7; 4096]),
    ///     Err(e) => println!("this file system cannot share blocks: {e}"),
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`reflink_from`](File::reflink_from); and `InvalidInput` for a range that is not made of
    /// whole blocks.
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
        let _blocks = self.hold_all_blocks()?;
        let call = Syscall::Clone { to: self.fd(), range: &range };
        // SAFETY: I1. The range lives in this frame, which is resumed only after the call.
        unsafe { perform(Op::Syscall(call)) }.map(drop)
    }
}

/// Converts an offset to the kernel's type.
pub(super) fn offset(offset: u64) -> io::Result<i64> {
    i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}
