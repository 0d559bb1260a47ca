//! The names of ops: one row for each, with the words that traces and reports use.

/// The meaning of an op's [`place`](super::OpDescription::place).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaceKind {
    /// Nothing, or a number that no report shows.
    Hidden,
    /// An offset in the file.
    Offset,
    /// The address of a path, a C string; null for none.
    Path,
    /// The address of the socket address of a peer.
    Peer,
    /// An address that says by itself what the op waits for.
    Address,
}

macro_rules! op_names {
    ($($name:ident $short:literal, $phrase:literal, $place:ident;)*) => {
        /// The kind of an op, as traces and reports name it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum OpName {
            $($name),*
        }

        /// Ops by one word, in the order of [`OpName`].
        pub const OP_NAMES: &[&str] = &[$($short),*];

        /// The completions of ops in a trace, in the order of [`OpName`].
        pub const OP_DONE_NAMES: &[&str] = &[$(concat!($short, " done")),*];

        /// Ops as the objects of "waits for", in the order of [`OpName`].
        pub const OP_PHRASES: &[&str] = &[$($phrase),*];

        /// The meanings of the places of ops, in the order of [`OpName`], for debuggers.
        pub const OP_PLACES: &[&str] = &[$(stringify!($place)),*];

        impl OpName {
            /// The op as the object of "waits for".
            pub fn as_str(self) -> &'static str {
                OP_PHRASES[self as usize]
            }

            pub(super) fn place_kind(self) -> PlaceKind {
                match self {
                    $(OpName::$name => PlaceKind::$place,)*
                }
            }
        }
    };
}

op_names! {
    Nop "nop", "a no-op", Hidden;
    Read "read", "a read", Offset;
    Write "write", "a write", Offset;
    Sync "fsync", "an fsync", Hidden;
    Open "open", "an open", Path;
    Close "close", "a close", Hidden;
    Stat "statx", "a statx", Path;
    SetLen "ftruncate", "an ftruncate", Hidden;
    Poll "poll", "a descriptor to become ready", Hidden;
    Unlink "unlink", "an unlink", Path;
    Rename "rename", "a rename", Path;
    MakeDir "mkdir", "a mkdir", Path;
    Symlink "symlink", "a symlink", Path;
    Link "link", "a link", Path;
    Allocate "fallocate", "a fallocate", Offset;
    Advise "fadvise", "an fadvise", Offset;
    SyncRange "sync_file_range", "a sync_file_range", Offset;
    GetXattr "getxattr", "a getxattr", Hidden;
    SetXattr "setxattr", "a setxattr", Hidden;
    Receive "recv", "data from a peer", Hidden;
    Send "send", "a peer to take data", Hidden;
    SendZc "send_zc", "a peer to take data that was not copied", Hidden;
    Accept "accept", "a connection from a peer", Hidden;
    Connect "connect", "a connection to a peer", Peer;
    ReadDir "getdents", "a getdents", Hidden;
    ReadLink "readlink", "a readlink", Path;
    RealPath "realpath", "a realpath", Path;
    SetMode "chmod", "a chmod", Path;
    SetOwner "chown", "a chown", Path;
    SetTimes "utimens", "a utimens", Path;
    Lock "flock", "a flock", Hidden;
    CopyRange "copy_file_range", "a copy_file_range", Hidden;
    Clone "clone", "a clone of a range (FICLONERANGE)", Hidden;
    Discard "discard", "a discard of a range (BLKDISCARD)", Hidden;
    SetWriteLife "set_rw_hint", "a write-life hint (F_SET_RW_HINT)", Hidden;
    Seek "lseek", "an lseek", Hidden;
    ListXattrs "listxattr", "a listxattr", Hidden;
    RemoveXattr "removexattr", "a removexattr", Hidden;
    ChangeRoot "chroot", "a chroot", Path;
    Futex "futex", "a wake-up of a futex", Address;
    Raw "raw", "a raw entry", Hidden;
}
