//! The ops: what a fiber asks of the kernel, as data.
//!
//! Ops are nested by what drivers do with them. [`table`] says where a new op is added.

mod description;
mod name;
mod socket;
mod storage;
mod table;
mod target;
mod transfer;

use super::syscall::Syscall;
pub use description::OpDescription;
pub use name::{OP_DONE_NAMES, OP_NAMES, OP_PHRASES, OP_PLACES, OpName};
pub use socket::{SocketMemory, SocketMemoryKind, SocketTransfer};
use std::os::fd::RawFd;
pub use storage::{FileOp, FileRange, NewName, PathOp, StatCall};
pub use target::Target;
pub use transfer::{Memory, MemoryKind, Transfer, Way};

/// The offset that means "at the file's own cursor": only for files without one (pipes, terminals)
/// and for `O_APPEND` writes (**I11**).
pub const AT_CURSOR: u64 = u64::MAX;

/// One request to the kernel. Its pointers stay valid until the op's last cqe (**I1**): they point
/// into memory that the waiting frame owns or borrows.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Nop,
    Transfer(Transfer),
    File(FileOp),
    Path(PathOp),
    Socket(SocketTransfer),
    Poll {
        fd: RawFd,
        events: u32,
    },
    /// Accepts a connection as a close-on-exec descriptor. The address may be null.
    Accept {
        fd: RawFd,
        addr: *mut libc::sockaddr_storage,
        addr_len: *mut libc::socklen_t,
    },
    Connect {
        fd: RawFd,
        addr: *const libc::sockaddr_storage,
        addr_len: libc::socklen_t,
    },
    /// Waits until a wake-up of a futex, while it has this value (Linux 6.7).
    FutexWait {
        word: *const u32,
        value: u32,
        mask: u32,
        /// Whether other processes may wake it.
        is_shared: bool,
    },
    /// A call that no ring has an op for; a thread of the pool makes it.
    Syscall(Syscall),
    /// An entry that the caller filled in, except its `user_data`.
    Raw(*const io_uring::squeue::Entry),
}

// A transfer has room for the mark of the variant; the others leave it free.
const _: () = assert!(size_of::<Op>() == 32, "an op is copied on every call: keep it small");
