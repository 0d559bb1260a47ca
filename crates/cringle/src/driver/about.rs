//! What is told of an op: in a report of who waits for what, and in a trace.

use super::op::AT_CURSOR;
use std::ffi::{CStr, CString, c_char};

/// What a person calls an op: for the report of who waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpName {
    Nop,
    Read,
    Write,
    Sync,
    Open,
    Close,
    Stat,
    SetLen,
    Poll,
    Unlink,
    Rename,
    MakeDir,
    Symlink,
    Link,
    Allocate,
    Advise,
    SyncRange,
    GetXattr,
    SetXattr,
    Receive,
    Send,
    SendZc,
    Accept,
    Connect,
    ReadDir,
    ReadLink,
    RealPath,
    SetMode,
    SetOwner,
    SetTimes,
    Lock,
    CopyRange,
    Clone,
    Seek,
    ListXattrs,
    RemoveXattr,
    ChangeRoot,
    Raw,
}

macro_rules! op_words {
    ($($word:literal)*) => {
        /// Ops by one word, in the order of [`OpName`].
        pub(crate) const OP_WORDS: &[&str] = &[$($word),*];
        /// What a trace calls their completions.
        pub(crate) const OP_DONE_WORDS: &[&str] = &[$(concat!($word, " done")),*];
    };
}

op_words! {
    "nop" "read" "write" "fsync" "open" "close" "statx" "ftruncate" "poll" "unlink" "rename" "mkdir"
    "symlink" "link" "fallocate" "fadvise" "sync_file_range" "getxattr" "setxattr" "recv" "send" "send_zc"
    "accept" "connect" "getdents" "readlink" "realpath" "chmod" "chown" "utimens" "flock" "copy_file_range"
    "clone" "lseek" "listxattr" "removexattr" "chroot" "raw"
}

const _: () = assert!(OP_WORDS.len() == OpName::Raw as usize + 1, "a word for each op");

impl OpName {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            OpName::Nop => "a no-op",
            OpName::Read => "a read",
            OpName::Write => "a write",
            OpName::Sync => "an fsync",
            OpName::Open => "an open",
            OpName::Close => "a close",
            OpName::Stat => "a statx",
            OpName::SetLen => "an ftruncate",
            OpName::Poll => "a descriptor to become ready",
            OpName::Unlink => "an unlink",
            OpName::Rename => "a rename",
            OpName::MakeDir => "a mkdir",
            OpName::Symlink => "a symlink",
            OpName::Link => "a link",
            OpName::Allocate => "a fallocate",
            OpName::Advise => "an fadvise",
            OpName::SyncRange => "a sync_file_range",
            OpName::GetXattr => "a getxattr",
            OpName::SetXattr => "a setxattr",
            OpName::Receive => "data of a peer",
            OpName::Send => "a peer to take data",
            OpName::SendZc => "a peer to have taken data that is not copied",
            OpName::Accept => "a connection of a peer",
            OpName::Connect => "a connection to a peer",
            OpName::ReadDir => "a getdents",
            OpName::ReadLink => "a readlink",
            OpName::RealPath => "a realpath",
            OpName::SetMode => "a chmod",
            OpName::SetOwner => "a chown",
            OpName::SetTimes => "a utimens",
            OpName::Lock => "a flock",
            OpName::CopyRange => "a copy_file_range",
            OpName::Clone => "a clone of a range (FICLONERANGE)",
            OpName::Seek => "an lseek",
            OpName::ListXattrs => "a listxattr",
            OpName::RemoveXattr => "a removexattr",
            OpName::ChangeRoot => "a chroot",
            OpName::Raw => "a raw entry",
        }
    }
}

/// What a report says of an op.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) name: OpName,
    /// See [`Op::file`](super::Op::file).
    pub(crate) file: i32,
    /// See [`Op::place`](super::Op::place); `None` where it is not known any more.
    pub(crate) place: Option<u64>,
}

impl About {
    /// The index of a registered file, if it is one.
    pub(crate) fn fixed(&self) -> Option<u32> {
        (self.file < -1).then(|| (-2 - self.file) as u32)
    }

    /// Where in the file.
    pub(crate) fn offset(&self) -> Option<u64> {
        let place = self.place.filter(|&offset| offset != AT_CURSOR);
        match self.name {
            OpName::Read | OpName::Write | OpName::Allocate | OpName::Advise => place,
            OpName::SyncRange => place,
            _ => None,
        }
    }

    /// The path that it is about.
    ///
    /// # Safety
    ///
    /// I1: the op is under way.
    pub(crate) unsafe fn path(&self) -> Option<CString> {
        let names_path = matches!(
            self.name,
            OpName::Open
                | OpName::Stat
                | OpName::Unlink
                | OpName::Rename
                | OpName::MakeDir
                | OpName::Symlink
                | OpName::Link
                | OpName::ReadLink
                | OpName::RealPath
                | OpName::SetMode
                | OpName::SetOwner
                | OpName::ChangeRoot
        );
        let address = self.place.filter(|&address| names_path && address != 0)?;
        // SAFETY: I1. What an op points to stays until its last cqe, and these ops point to a string.
        let path = unsafe { CStr::from_ptr(address as *const c_char) };
        // The file itself, by its descriptor.
        (!path.is_empty()).then(|| path.to_owned())
    }

    /// The address that it connects to.
    ///
    /// # Safety
    ///
    /// I1: the op is under way.
    pub(crate) unsafe fn peer(&self) -> Option<std::net::SocketAddr> {
        let connects = self.name == OpName::Connect;
        let address = self.place.filter(|&address| connects && address != 0)?;
        // SAFETY: I1. What an op points to stays until its last cqe, and this one to an address with room
        // for any kind.
        let storage = unsafe { std::ptr::read(address as *const socket2::SockAddrStorage) };
        let len = size_of::<socket2::SockAddrStorage>() as socket2::socklen_t;
        // SAFETY: all of the storage can be read, whatever family it names.
        unsafe { socket2::SockAddr::new(storage, len) }.as_socket()
    }
}
