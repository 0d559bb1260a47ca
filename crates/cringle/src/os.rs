//! Extensions for Unix and Linux, under std's paths.

pub use std::os::fd;

/// Extensions for Unix, as `std::os::unix`.
pub mod unix {
    pub use std::os::unix::{ffi, io};

    /// Files: std's own extension traits, which [`File`](crate::fs::File),
    /// [`OpenOptions`](crate::fs::OpenOptions), [`Metadata`](crate::fs::Metadata),
    /// [`FileType`](crate::fs::FileType), [`DirEntry`](crate::fs::DirEntry) and
    /// [`DirBuilder`](crate::fs::DirBuilder) implement, and the functions of `std::os::unix::fs`.
    pub mod fs {
        pub use crate::fs::names::symlink;
        pub use crate::fs::owner::{chown, chroot, fchown, lchown};
        pub use std::os::unix::fs::{
            DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt,
            PermissionsExt,
        };
    }

    /// Unix sockets, as `std::os::unix::net`. Only the calling fiber waits.
    pub mod net {
        pub use crate::net::unix::{
            Incoming, ReceivedFds, SocketAddr, UCred, UnixDatagram, UnixListener, UnixStream,
        };
    }

    /// Processes. Traits that std has sealed are this library's, under std's names.
    pub mod process {
        pub use crate::process::unix::{ChildExt, CommandExt};
        pub use std::os::unix::process::{ExitStatusExt, parent_id};
    }

    /// All of the extension traits.
    pub mod prelude {
        pub use super::process::{ChildExt, CommandExt};
        pub use std::os::unix::prelude::*;
    }
}

/// Extensions for Linux, as `std::os::linux`.
pub mod linux {
    /// File metadata.
    pub mod fs {
        pub use crate::fs::linux::LinuxMetadataExt as MetadataExt;
    }

    /// Abstract addresses of Unix sockets (std's own trait, for std's own type), and options of a
    /// `TcpStream`.
    pub mod net {
        pub use crate::net::linux::TcpStreamExt;
        pub use std::os::linux::net::SocketAddrExt;
    }
}
