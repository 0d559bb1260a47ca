//! What is particular to Unix and Linux, under std's paths.

pub use std::os::fd;

/// Unix.
pub mod unix {
    pub use std::os::unix::{ffi, io};

    /// Files: std's own extension traits, which [`File`](crate::fs::File),
    /// [`OpenOptions`](crate::fs::OpenOptions), [`Metadata`](crate::fs::Metadata),
    /// [`FileType`](crate::fs::FileType), [`DirEntry`](crate::fs::DirEntry) and
    /// [`DirBuilder`](crate::fs::DirBuilder) implement, and std's functions.
    pub mod fs {
        pub use crate::fs::names::symlink;
        pub use crate::fs::owner::{chown, chroot, fchown, lchown};
        pub use std::os::unix::fs::{
            DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt,
            PermissionsExt,
        };
    }

    /// Unix sockets, as std's; only the calling fiber waits.
    pub mod net {
        pub use crate::net::unix::{
            Incoming, ReceivedFds, SocketAddr, UCred, UnixDatagram, UnixListener, UnixStream,
        };
    }

    /// Processes. The traits that std has sealed are ours, under their names.
    pub mod process {
        pub use crate::process::unix::{ChildExt, CommandExt};
        pub use std::os::unix::process::{ExitStatusExt, parent_id};
    }

    /// All of the traits, to be imported at once.
    pub mod prelude {
        pub use super::process::{ChildExt, CommandExt};
        pub use std::os::unix::prelude::*;
    }
}

/// Linux.
pub mod linux {
    /// Files.
    pub mod fs {
        pub use crate::fs::linux::LinuxMetadataExt as MetadataExt;
    }

    /// Abstract addresses of Unix sockets: std's own trait for std's own type. And what std adds to a `TcpStream`.
    pub mod net {
        pub use crate::net::linux::TcpStreamExt;
        pub use std::os::linux::net::SocketAddrExt;
    }
}
