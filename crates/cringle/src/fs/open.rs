//! Opening files.

use super::File;
use crate::driver::Op;
use crate::fiber::op::perform;
use crate::runtime::worker::Worker;
use crate::sys;
use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// How a file is opened: `std::fs::OpenOptions`. Unix's `mode` and `custom_flags` come with std's
/// own [`OpenOptionsExt`].
///
/// ```no_run
/// use cringle::fs::OpenOptions;
/// use std::os::unix::fs::OpenOptionsExt;
///
/// let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open("data")?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The same options for the calls that are std's.
    std: std::fs::OpenOptions,
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    custom_flags: i32,
    mode: u32,
}

macro_rules! option {
    ($(#[$attr:meta])* $name:ident) => {
        $(#[$attr])*
        pub fn $name(&mut self, $name: bool) -> &mut Self {
            self.std.$name($name);
            self.$name = $name;
            self
        }
    };
}

impl OpenOptions {
    /// Nothing is set.
    #[allow(clippy::new_without_default, reason = "std's has no Default either")]
    pub fn new() -> OpenOptions {
        OpenOptions {
            std: std::fs::OpenOptions::new(),
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            custom_flags: 0,
            mode: 0o666,
        }
    }

    option! {
        /// To read.
        read
    }
    option! {
        /// To write.
        write
    }
    option! {
        /// To write at the end, wherever that is at each write.
        append
    }
    option! {
        /// To empty it first; needs `write`.
        truncate
    }
    option! {
        /// To make it if it is not there; needs `write` or `append`.
        create
    }
    option! {
        /// To make it, and fail if it is there; needs `write` or `append`.
        create_new
    }

    /// Opens the file; only the calling fiber waits.
    ///
    /// # Errors
    ///
    /// As `std::fs::OpenOptions::open`; and [`Cancelled`](crate::Cancelled).
    ///
    /// # Cancellation
    ///
    /// The kernel is asked to give up; a file that it has opened all the same is returned.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.open_path(path.as_ref())
    }

    fn open_path(&self, path: &Path) -> io::Result<File> {
        let plain = || self.std.open(path).map(File::from);
        let Some((worker, fiber)) = Worker::current() else { return plain() };
        if worker.is_unwinding(fiber) {
            return plain();
        }
        let flags = self.flags()?;
        let c_path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the path has a NUL byte"))?;
        let op = Op::Open { dir: libc::AT_FDCWD, path: c_path.as_ptr(), flags, mode: self.mode };
        loop {
            let fd = match perform(worker, fiber, op) {
                Ok(fd) => fd as i32,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // The ring opens without waiting; for a FIFO that is another thing.
                Err(e) if e.raw_os_error() == Some(libc::ENXIO) && !self.is_nonblocking() => {
                    return crate::fiber::unblock(plain);
                }
                Err(e) => return Err(e),
            };
            // SAFETY: the op has just returned this descriptor, and nobody else knows it.
            let file = unsafe { OwnedFd::from_raw_fd(fd) };
            if sys::is_fifo(fd) && !self.is_nonblocking() {
                drop(file);
                return crate::fiber::unblock(plain);
            }
            return Ok(File::from(file));
        }
    }

    fn is_nonblocking(&self) -> bool {
        self.custom_flags & libc::O_NONBLOCK != 0
    }

    /// The flags of `open(2)`, with std's rules for what goes together.
    fn flags(&self) -> io::Result<i32> {
        let invalid = || Err(io::Error::from_raw_os_error(libc::EINVAL));
        let access = match (self.read, self.write, self.append) {
            (true, false, false) => libc::O_RDONLY,
            (false, true, false) => libc::O_WRONLY,
            (true, true, false) => libc::O_RDWR,
            (false, _, true) => libc::O_WRONLY | libc::O_APPEND,
            (true, _, true) => libc::O_RDWR | libc::O_APPEND,
            (false, false, false) => return invalid(),
        };
        let makes = self.create || self.create_new;
        if !self.write && !self.append && (self.truncate || makes) {
            return invalid();
        }
        if self.append && self.truncate && !self.create_new {
            return invalid();
        }
        let creation = match (self.create, self.truncate, self.create_new) {
            (_, _, true) => libc::O_CREAT | libc::O_EXCL,
            (true, true, false) => libc::O_CREAT | libc::O_TRUNC,
            (true, false, false) => libc::O_CREAT,
            (false, true, false) => libc::O_TRUNC,
            (false, false, false) => 0,
        };
        Ok(libc::O_CLOEXEC | access | creation | self.custom_flags & !libc::O_ACCMODE)
    }
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, mode: u32) -> &mut Self {
        self.std.mode(mode);
        self.mode = mode;
        self
    }

    fn custom_flags(&mut self, flags: i32) -> &mut Self {
        self.std.custom_flags(flags);
        self.custom_flags = flags;
        self
    }
}
