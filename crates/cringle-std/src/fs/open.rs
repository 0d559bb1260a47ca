//! Opening files.

use super::File;
use super::bounce::{self, Direct};
use super::fifo;
use super::perform::c_path;
use super::resolve::{Base, open, open_cached};
use super::stat::{self, stat, stat_open};
use crate::fiber::backoff::Backoff;
use crate::fiber::protect;
use cringle_core::worker::Current;
use cringle_sys::{self as sys, Owned, plainly};
use std::ffi::CStr;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Flags that leave no trace in an open file.
const HARMLESS: i32 = libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NOCTTY;

/// Options for opening a file, as `std::fs::OpenOptions`. std's own [`OpenOptionsExt`] adds `mode`
/// and `custom_flags`.
///
/// ```no_run
/// use cringle::fs::OpenOptions;
/// use std::os::unix::fs::OpenOptionsExt;
///
/// let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open("data")?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct OpenOptions {
    /// The same options, for std's own call and error messages.
    std: std::fs::OpenOptions,
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    custom_flags: i32,
    mode: u32,
    direct: Option<Direct>,
}

macro_rules! option {
    ($($(#[$attr:meta])* $name:ident;)*) => {$(
        $(#[$attr])*
        pub fn $name(&mut self, $name: bool) -> &mut Self {
            self.std.$name($name);
            self.$name = $name;
            self
        }
    )*};
}

impl OpenOptions {
    /// Returns options with no access mode and no flags.
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
            direct: None,
        }
    }

    option! {
        /// Sets read access.
        ///
        /// ```
        /// cringle::fs::OpenOptions::new().read(true).open("/proc/self/exe")?;
        /// # std::io::Result::Ok(())
        /// ```
        read;
        /// Sets write access.
        ///
        /// ```
        /// cringle::fs::OpenOptions::new().write(true).open("/dev/null")?;
        /// # std::io::Result::Ok(())
        /// ```
        write;
        /// Sets append mode: each write goes to the current end of the file.
        ///
        /// ```
        /// # let directory = tempfile::tempdir()?;
        /// # let path = directory.path().join("log");
        /// let log = cringle::fs::OpenOptions::new().append(true).create(true).open(&path)?;
        /// # std::io::Result::Ok(())
        /// ```
        append;
        /// Sets truncation: an existing file is emptied. Requires `write`.
        ///
        /// ```
        /// # let directory = tempfile::tempdir()?;
        /// # let path = directory.path().join("file");
        /// cringle::fs::write(&path, "old")?;
        /// let file = cringle::fs::OpenOptions::new().write(true).truncate(true).open(&path)?;
        /// assert_eq!(file.metadata()?.len(), 0);
        /// # std::io::Result::Ok(())
        /// ```
        truncate;
        /// Sets creation: a missing file is created. Requires `write` or `append`.
        ///
        /// ```
        /// # let directory = tempfile::tempdir()?;
        /// # let path = directory.path().join("file");
        /// cringle::fs::OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
        /// # std::io::Result::Ok(())
        /// ```
        create;
        /// Sets exclusive creation: the file is created, and opening fails with `AlreadyExists` if
        /// it exists. Requires `write` or `append`.
        ///
        /// ```
        /// # let directory = tempfile::tempdir()?;
        /// # let path = directory.path().join("file");
        /// let mut options = cringle::fs::OpenOptions::new();
        /// options.write(true).create_new(true).open(&path)?;
        /// let error = options.open(&path).unwrap_err();
        /// assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
        /// # std::io::Result::Ok(())
        /// ```
        create_new;
    }

    /// Sets direct I/O: reads and writes bypass the page cache (`O_DIRECT`). It adds to
    /// [`custom_flags`](OpenOptionsExt::custom_flags), and replaces none of them.
    ///
    /// ```
    /// use cringle::fs::{Direct, OpenOptions};
    /// use std::os::unix::fs::FileExt;
    ///
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let path = directory.path().join("log");
    /// let mut options = OpenOptions::new();
    /// let options = options.write(true).create(true).truncate(false).direct(Direct::Bounce);
    /// match options.open(&path) {
    ///     Ok(file) => file.write_all_at(b"any bytes, anywhere", 3)?,
    ///     Err(e) => println!("no direct I/O here: {e}"),
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn direct(&mut self, direct: Direct) -> &mut Self {
        self.direct = Some(direct);
        self
    }

    /// Opens the file. Only the calling fiber waits.
    ///
    /// Opening a FIFO waits for its other end, as std's does.
    ///
    /// # Errors
    ///
    /// As `std::fs::OpenOptions::open`; [`Cancelled`](cringle_core::cancelled::Cancelled); and
    /// `InvalidInput` if the file refuses direct I/O, or if [`Direct::Bounce`] is asked for in
    /// append mode, with `O_PATH`, or for a file that is neither a regular one nor a block device.
    ///
    /// # Cancellation
    ///
    /// The op is cancelled in the kernel. If the kernel has opened the file nevertheless, it is
    /// returned.
    pub fn open<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        self.open_from(Base::Ambient, path.as_ref())
    }

    /// Opens a path relative to `base`.
    pub(super) fn open_from(&self, base: Base<'_>, path: &Path) -> io::Result<File> {
        match self.direct {
            None => self.open_as_set(base, path),
            Some(direct) => self.open_direct(base, path, direct),
        }
    }

    fn open_direct(&self, base: Base<'_>, path: &Path, direct: Direct) -> io::Result<File> {
        let bounces = direct == Direct::Bounce;
        if bounces && (self.append || self.custom_flags & libc::O_APPEND != 0) {
            let text = "Direct::Bounce cannot append: open the file with write(true), and write at \
                        an offset";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if bounces && self.custom_flags & libc::O_PATH != 0 {
            let text = "Direct::Bounce reads and writes, which a descriptor of a path (O_PATH) \
                        cannot: open the file without O_PATH, or without OpenOptions::direct";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut options = self.clone();
        let mut flags = self.custom_flags | libc::O_DIRECT;
        // `open` would truncate the file while another handle writes back what it has read.
        let empties = self.truncate || self.custom_flags & libc::O_TRUNC != 0;
        let empties = bounces && self.write && !self.create_new && empties;
        if empties {
            options.truncate(false);
            flags &= !libc::O_TRUNC;
        }
        options.custom_flags(flags);
        // A write of a part of a block reads the block.
        let reads_blocks = bounces && self.write && !self.read;
        if reads_blocks {
            options.read(true);
        }
        let file = options.open_as_set(base, path).map_err(bounce::explain_open)?;
        if !bounces {
            return Ok(file);
        }
        let file = file.with_bounce(reads_blocks)?;
        if empties {
            file.empty_blocks()?;
        }
        Ok(file)
    }

    fn open_as_set(&self, base: Base<'_>, path: &Path) -> io::Result<File> {
        let refused = || match base {
            // std refuses these options without a system call, and returns its own error.
            Base::Ambient => plainly(|| self.std.open(path)).map(File::of_std),
            Base::Beneath(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        let Some(flags) = self.flags() else { return refused() };
        let c_path = c_path(path)?;
        let open_with_flags = |flags| open(base, &c_path, flags, self.mode);
        let Some(current) = Current::get() else {
            return match base {
                Base::Ambient => plainly(|| self.std.open(path)).map(File::of_std),
                Base::Beneath(_) => {
                    open_with_flags(flags).map(|fd| File::of_std(fd.into_std().into()))
                }
            };
        };
        let waits = flags & (libc::O_NONBLOCK | libc::O_PATH) == 0;
        let open_flags = if waits { flags | libc::O_NONBLOCK } else { flags };
        if open_flags & libc::O_NONBLOCK != 0
            && let Base::Ambient = base
            && let Some(opened) = open_cached(current, &c_path, open_flags)
        {
            return self.opened(current, opened?, flags, waits);
        }
        let mut backoff = Backoff::default();
        loop {
            let e = match open_with_flags(open_flags) {
                Ok(fd) => return self.opened(current, fd, flags, waits),
                Err(e) => e,
            };
            match e.raw_os_error() {
                Some(libc::EINTR) => {}
                // Protected, so that a cancelled fiber gets the error of the cancel from the
                // backoff.
                Some(libc::ENXIO) if waits && protect(|| is_fifo(base, &c_path)) => {
                    backoff.pause(current)?;
                }
                // No other process holds a lease on a simulated file, so this is an injected fault.
                Some(libc::EAGAIN) if waits && !current.worker.may_bypass() => {
                    backoff.pause(current)?;
                }
                // Another process holds a lease, and the kernel has asked it to release the lease.
                // The plain call waits for that.
                Some(libc::EAGAIN) if waits => {
                    let fd = crate::fiber::unblock(|| open_with_flags(flags))?;
                    return Ok(File::of_std(fd.into_std().into()));
                }
                _ => return Err(e),
            }
        }
    }

    /// Wraps a new descriptor, after waiting for the writer of a FIFO.
    fn opened(&self, current: Current, file: Owned, flags: i32, waits: bool) -> io::Result<File> {
        if flags & libc::O_PATH != 0 {
            return Ok(File::of_std(file.into_std().into()));
        }
        let is_plain = flags & !HARMLESS == libc::O_RDONLY && current.worker.may_bypass();
        if waits && is_plain && sys::cursor(file.as_raw_fd()) == Some(0) {
            return Ok(File::of_fresh(file));
        }
        let kind = sys::file_kind_with(file.as_raw_fd(), flags);
        if waits {
            if kind.fifo && flags & libc::O_ACCMODE == libc::O_RDONLY {
                fifo::wait_for_writer(current, &file)?;
            }
            sys::set_status_flags(file.as_raw_fd(), flags)?;
        }
        Ok(File::of_kind(file, kind))
    }

    /// Returns the flags of `open(2)`, or `None` for a combination that std refuses.
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

/// Whether the path leads to a FIFO. `open` fails with `ENXIO` for a socket and for a device
/// without a driver, too.
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
