//! Extensions for Unix and Linux, under std's paths.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! use cringle::{fs::File, os::unix::fs::FileExt};
//!
//! cringle::run(|| {
//!     let mut magic = [0; 4];
//!     File::open("/proc/self/exe")?.read_exact_at(&mut magic, 0)?;
//!     assert_eq!(&magic, b"\x7fELF");
//!     Ok(())
//! })
//! # }
//! ```

pub use std::os::fd;

/// Extensions for Unix.
///
/// ```
/// use cringle::os::unix::net::UnixStream;
///
/// let (left, right) = UnixStream::pair()?;
/// # drop((left, right));
/// # std::io::Result::Ok(())
/// ```
pub mod unix {
    pub use std::os::unix::{ffi, io};

    /// Extensions for files: std's functions, and std's own extension traits, which
    /// [`File`](crate::fs::File), [`OpenOptions`](crate::fs::OpenOptions),
    /// [`Metadata`](crate::fs::Metadata), [`FileType`](crate::fs::FileType),
    /// [`DirEntry`](crate::fs::DirEntry) and [`DirBuilder`](crate::fs::DirBuilder) implement.
    ///
    /// ```
    /// use cringle::{fs, os::unix::fs::MetadataExt};
    ///
    /// assert!(fs::metadata("/proc/self/exe")?.ino() > 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub mod fs {
        pub use crate::fs::names::symlink;
        pub use crate::fs::owner::{chown, chroot, fchown, lchown};
        pub use std::os::unix::fs::{
            DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt,
            PermissionsExt,
        };
    }

    /// Unix sockets, as std's. Only the calling fiber waits.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::os::unix::net::UnixStream;
    /// use std::io::{Read, Write};
    ///
    /// cringle::run(|| {
    ///     let (mut left, mut right) = UnixStream::pair()?;
    ///     left.write_all(b"rope")?;
    ///     let mut received = [0; 4];
    ///     right.read_exact(&mut received)?;
    ///     assert_eq!(&received, b"rope");
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub mod net {
        pub use crate::net::unix::{
            Incoming, ReceivedFds, SocketAddr, UCred, UnixDatagram, UnixListener, UnixStream,
        };
    }

    /// Extensions for processes. The traits that std has sealed are replaced by traits of the same
    /// names.
    ///
    /// ```
    /// use cringle::{os::unix::process::ExitStatusExt, process::Command};
    ///
    /// let status = cringle::run(|| Command::new("true").status())?;
    /// assert_eq!(status.signal(), None);
    /// # std::io::Result::Ok(())
    /// ```
    pub mod process {
        pub use crate::process::unix::{ChildExt, CommandExt};
        pub use std::os::unix::process::{ExitStatusExt, parent_id};
    }

    /// All of the traits, for a glob import.
    ///
    /// ```
    /// use cringle::fs::File;
    /// use cringle::os::unix::prelude::*;
    ///
    /// let mut byte = [0];
    /// File::open("/proc/self/exe")?.read_exact_at(&mut byte, 1)?;
    /// assert_eq!(byte, *b"E");
    /// # std::io::Result::Ok(())
    /// ```
    pub mod prelude {
        pub use super::process::{ChildExt, CommandExt};
        pub use std::os::unix::prelude::*;
    }
}

/// Extensions for Linux.
///
/// ```
/// use cringle::{fs, os::linux::fs::MetadataExt};
///
/// assert!(fs::metadata("/proc/self/exe")?.st_ino() > 0);
/// # std::io::Result::Ok(())
/// ```
pub mod linux {
    /// Extensions for files.
    ///
    /// ```
    /// use cringle::{fs, os::linux::fs::MetadataExt};
    ///
    /// assert!(fs::metadata("/proc/self/exe")?.st_size() > 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub mod fs {
        pub use crate::fs::linux::LinuxMetadataExt as MetadataExt;
    }

    /// Extensions for sockets: std's trait for abstract addresses of Unix sockets, and std's
    /// additions to a `TcpStream`.
    ///
    /// ```
    /// use cringle::os::{linux::net::SocketAddrExt, unix::net::SocketAddr};
    ///
    /// let address = SocketAddr::from_abstract_name(b"cringle")?;
    /// assert_eq!(address.as_abstract_name(), Some(&b"cringle"[..]));
    /// # std::io::Result::Ok(())
    /// ```
    pub mod net {
        pub use crate::net::linux::TcpStreamExt;
        pub use std::os::linux::net::SocketAddrExt;
    }
}
