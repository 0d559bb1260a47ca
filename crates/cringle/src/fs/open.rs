//! Opening files.

use super::File;
use super::fifo;
use super::perform::c_path;
use super::resolve::{Base, open};
use super::stat::{self, stat, stat_open};
use crate::fiber::backoff::Backoff;
use crate::fiber::protect;
use crate::runtime::fiber::FiberRef;
use crate::runtime::worker::{Here, Worker};
use crate::sys;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
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
#[derive(Clone)]
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
    pub fn open<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        self.open_from(Base::Ambient, path.as_ref())
    }

    /// The same for a path that may be bound to a directory.
    pub(super) fn open_from(&self, base: Base<'_>, path: &Path) -> io::Result<File> {
        let refused = || match base {
            // What std refuses before it asks the kernel, it refuses here, in its words.
            Base::Ambient => self.std.open(path).map(File::of_std),
            Base::Beneath(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        let Some(flags) = self.flags() else { return refused() };
        let c_path = c_path(path)?;
        let ask_with = |flags| open(base, &c_path, flags, self.mode);
        let Some((worker, fiber)) = Worker::current() else {
            return match base {
                Base::Ambient => self.std.open(path).map(File::of_std),
                Base::Beneath(_) => ask_with(flags).map(|fd| File::of_std(fd.into())),
            };
        };
        let waits = flags & (libc::O_NONBLOCK | libc::O_PATH) == 0;
        let asked = if waits { flags | libc::O_NONBLOCK } else { flags };
        let mut backoff = Backoff::default();
        loop {
            let e = match ask_with(asked) {
                Ok(fd) => return self.opened(worker, fiber, fd, flags, waits),
                Err(e) => e,
            };
            match e.raw_os_error() {
                Some(libc::EINTR) => {}
                // Looked at though the fiber is cancelled by now: the pause says so.
                Some(libc::ENXIO) if waits && protect(|| is_fifo(base, &c_path)) => {
                    backoff.pause(worker, fiber)?;
                }
                // Nobody outside holds a lease on a simulated file.
                Some(libc::EAGAIN) if waits && worker.is_simulated() => {
                    backoff.pause(worker, fiber)?;
                }
                // Somebody holds a lease and is being asked to give it up: std waits for that.
                Some(libc::EAGAIN) if waits => {
                    let fd = crate::fiber::unblock(|| ask_with(flags))?;
                    return Ok(File::of_std(fd.into()));
                }
                _ => return Err(e),
            }
        }
    }

    /// The file of this new descriptor.
    fn opened(
        &self,
        worker: Here,
        fiber: FiberRef,
        file: OwnedFd,
        flags: i32,
        waits: bool,
    ) -> io::Result<File> {
        if flags & libc::O_PATH != 0 {
            return Ok(File::of_std(file.into()));
        }
        let kind = sys::file_kind_with(file.as_raw_fd(), flags);
        if waits {
            if kind.fifo && flags & libc::O_ACCMODE == libc::O_RDONLY {
                fifo::wait_for_writer(worker, fiber, &file)?;
            }
            sys::set_status_flags(file.as_raw_fd(), flags)?;
        }
        Ok(File::known(file, kind))
    }

    /// The flags of `open(2)`, with std's rules for what goes together; `None` if it does not.
    fn flags(&self) -> Option<i32> {
        let access = match (self.read, self.write, self.append) {
            (true, false, false) => libc::O_RDONLY,
            (false, true, false) => libc::O_WRONLY,
            (true, true, false) => libc::O_RDWR,
            (false, _, true) => libc::O_WRONLY | libc::O_APPEND,
            (true, _, true) => libc::O_RDWR | libc::O_APPEND,
            (false, false, false) => return None,
        };
        let makes = self.create || self.create_new;
        if !self.write && !self.append && (self.truncate || makes) {
            return None;
        }
        if self.append && self.truncate && !self.create_new {
            return None;
        }
        let creation = match (self.create, self.truncate, self.create_new) {
            (_, _, true) => libc::O_CREAT | libc::O_EXCL,
            (true, true, false) => libc::O_CREAT | libc::O_TRUNC,
            (true, false, false) => libc::O_CREAT,
            (false, true, false) => libc::O_TRUNC,
            (false, false, false) => 0,
        };
        Some(libc::O_CLOEXEC | access | creation | self.custom_flags & !libc::O_ACCMODE)
    }
}

impl std::fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.std.fmt(f)
    }
}

/// `ENXIO` is also the answer for a socket, and for a device without a driver.
fn is_fifo(base: Base<'_>, path: &CStr) -> bool {
    let metadata = match base {
        Base::Ambient => stat(libc::AT_FDCWD, path, 0, stat::ALL),
        Base::Beneath(_) => open(base, path, libc::O_PATH | libc::O_CLOEXEC, 0)
            .and_then(|fd| stat_open(&fd, stat::ALL)),
    };
    metadata.is_ok_and(|metadata| metadata.file_type().is_fifo())
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
