//! Hints for the device below a file: the expected life of written bytes, and bytes that are no
//! longer needed. A thread of the pool makes the calls, since each may wait for a lock of the inode
//! or for the device.

use super::File;
use super::perform::perform;
use cringle_driver::Op;
use cringle_driver::syscall::Syscall;
use cringle_sys as sys;
use std::io;

/// The time until a file's bytes are expected to be overwritten or deleted, relative to the time of
/// other files: see [`File::set_write_life`].
///
/// ```
/// use cringle::fs::WriteLife;
///
/// assert_eq!(WriteLife::default(), WriteLife::NotSet);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WriteLife {
    /// No hint was given.
    #[default]
    NotSet,
    /// The bytes have no particular life.
    None,
    /// Short: a write-ahead log, say.
    Short,
    /// Longer than short.
    Medium,
    /// Longer than medium.
    Long,
    /// The longest: bytes that are written once.
    Extreme,
}

impl WriteLife {
    /// By the kernel's number (`RWH_WRITE_LIFE_…`).
    const BY_NUMBER: [WriteLife; 6] = {
        use WriteLife::*;
        [NotSet, None, Short, Medium, Long, Extreme]
    };
}

impl File {
    /// Tells the kernel how soon the file's bytes are expected to be overwritten or deleted
    /// (`fcntl(F_SET_RW_HINT)`, Linux 4.13). A device that supports streams or data placement keeps
    /// bytes of similar life together, so that it moves fewer of them. The hint belongs to the
    /// inode: it applies to later writes through every handle, and is lost when the kernel forgets
    /// the inode.
    ///
    /// ```
    /// use cringle::fs::{File, WriteLife};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// let log = File::create(directory.path().join("log"))?;
    /// match log.set_write_life(WriteLife::Short) {
    ///     Ok(()) => assert_eq!(log.write_life()?, WriteLife::Short),
    ///     Err(e) => println!("no hints here: {e}"),
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` before Linux 4.13; `PermissionDenied` if the caller does not own the file
    /// (Linux 6.8); and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn set_write_life(&self, life: WriteLife) -> io::Result<()> {
        let number = life as u64;
        let call = Syscall::SetWriteLife { fd: self.fd(), life: &number };
        // SAFETY: I1. The number lives in this frame, which is resumed only after the call.
        unsafe { perform(Op::Syscall(call)) }.map(drop).map_err(no_hints)
    }

    /// Returns what [`set_write_life`](File::set_write_life) has set last, through any handle
    /// (`fcntl(F_GET_RW_HINT)`). It does not wait.
    ///
    /// ```
    /// use cringle::fs::{File, WriteLife};
    ///
    /// if let Ok(life) = File::open("/proc/self/exe")?.write_life() {
    ///     assert_eq!(life, WriteLife::NotSet);
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` before Linux 4.13.
    pub fn write_life(&self) -> io::Result<WriteLife> {
        let number = sys::write_life(self.fd()).map_err(no_hints)?;
        // A number of a later kernel says nothing that this type can say.
        Ok(WriteLife::BY_NUMBER.get(number as usize).copied().unwrap_or_default())
    }

    /// Declares that `len` bytes from `offset` are no longer needed. A block device may forget them
    /// (`BLKDISCARD`), and a regular file frees their disk space, as
    /// [`punch_hole`](File::punch_hole) does.
    ///
    /// Afterwards a range of a file reads as zeros, and a range of a device as anything: the old
    /// bytes, zeros or others. For zeros on a device, use `punch_hole`.
    ///
    /// ```
    /// use cringle::fs::{self, File};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("file");
    /// fs::write(&path, [1; 8192])?;
    /// let file = File::options().write(true).open(&path)?;
    /// if file.discard(0, 4096).is_ok() {
    ///     assert_eq!(fs::read(&path)?[..4096], [0; 4096]);
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a range of a device that is not made of whole logical blocks or reaches
    /// beyond its end; `Unsupported` if the device or the file system cannot discard; the errors of
    /// `fallocate(2)`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        if !sys::is_block_device(self.fd()) {
            return self.punch_hole(offset, len);
        }
        let _blocks = self.hold_all_blocks()?;
        let range = [offset, len];
        let call = Syscall::Discard { fd: self.fd(), range: &range };
        // SAFETY: I1. The range lives in this frame, which is resumed only after the call.
        let result = unsafe { perform(Op::Syscall(call)) };
        result.map(drop).map_err(|e| explain_discard(e, offset, len))
    }
}

/// Gives words to the error of a kernel or a file system without write-life hints.
fn no_hints(e: io::Error) -> io::Error {
    if e.raw_os_error() != Some(libc::EINVAL) {
        return e;
    }
    let text = "this kernel or the file system has no write-life hints: write without them";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// Gives words to the error of a block device.
#[cold]
fn explain_discard(e: io::Error, offset: u64, len: u64) -> io::Error {
    match e.raw_os_error() {
        Some(libc::EINVAL) => {
            let text = format!(
                "offset {offset}, length {len}: a device discards whole logical blocks within its \
                 size: align both, and see `blockdev --getss --getsize64`"
            );
            io::Error::new(io::ErrorKind::InvalidInput, text)
        }
        Some(libc::EOPNOTSUPP) => {
            let text = "the device does not discard: overwrite the range, or leave it";
            io::Error::new(io::ErrorKind::Unsupported, text)
        }
        _ => e,
    }
}

#[cfg(test)]
mod tests {
    use super::explain_discard;
    use std::io;

    /// A test of a device that refuses would change a setting of the machine.
    #[test]
    fn refusal_of_a_device_has_words() {
        let explain = |code| explain_discard(io::Error::from_raw_os_error(code), 512, 4096);
        let refused = explain(libc::EOPNOTSUPP);
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        assert!(refused.to_string().contains("does not discard"), "{refused}");
        assert_eq!(explain(libc::EIO).raw_os_error(), Some(libc::EIO));
    }
}
