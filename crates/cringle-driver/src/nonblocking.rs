//! Sockets that are non-blocking while a fiber waits on them.
//!
//! `accept` and `connect` have no flag that makes one call non-blocking, and a worker must not
//! block in one: between the kernel's event for a connection and the call, another process may
//! accept it. So a socket has `O_NONBLOCK` while an `accept` of a fiber waits on it, and loses it
//! with the last such `accept`. The flag belongs to the open file, which all clones of the socket
//! share. It is visible to:
//!
//! - fibers, on any worker: not at all. The holds are kept apart from what the program has set
//!   ([`is_set_by_program`], [`set`]);
//! - blocking calls of the library on a thread without a fiber: not at all. They wait by `poll(2)`
//!   on `EAGAIN` (`net::Socket::accept_plainly`);
//! - `accept` on a clone that belongs to std or to another process: it may return `WouldBlock`
//!   *while a fiber waits in `accept` on the same socket*. The library cannot prevent this.
//!
//! A socket is known here by the number of its inode, which is unique and the same for all clones;
//! their descriptors differ. A socket that is being connected belongs to its frame alone. It is
//! held in the same way, because that costs next to nothing.

use cringle_sys as sys;
use cringle_sys::fork::{ForkGuard, ForkLock};
use std::collections::BTreeMap;
use std::os::fd::RawFd;

static HELD: ForkLock<BTreeMap<u64, Held>> = ForkLock::new(BTreeMap::new());

/// A socket that the library has made non-blocking.
struct Held {
    /// The number of ops that need it to be.
    holds: u32,
    /// Whether the program has meanwhile asked for a non-blocking socket.
    set_by_program: bool,
}

/// Keeps a socket non-blocking until it is released.
pub(super) struct Hold(u64);

impl Hold {
    /// Returns `None` if the program has made the socket non-blocking, or if this is no socket.
    pub(super) fn take(fd: RawFd) -> Option<Hold> {
        let inode = sys::socket_number(fd)?;
        let mut held = lock();
        if let Some(held) = held.get_mut(&inode) {
            held.holds += 1;
            return Some(Hold(inode));
        }
        if sys::status_flags(fd) & libc::O_NONBLOCK != 0 {
            return None;
        }
        sys::make_nonblocking(fd, true);
        held.insert(inode, Held { holds: 1, set_by_program: false });
        Some(Hold(inode))
    }

    pub(super) fn release(self, fd: RawFd) {
        let Hold(inode) = self;
        let mut held = lock();
        let Some(found) = held.get_mut(&inode) else { return };
        debug_assert!(found.holds > 0, "a hold was released twice");
        found.holds -= 1;
        if found.holds > 0 {
            return;
        }
        let set_by_program = found.set_by_program;
        held.remove(&inode);
        // If the descriptor was closed meanwhile, its number may name another file.
        if !set_by_program && sys::socket_number(fd) == Some(inode) {
            sys::make_nonblocking(fd, false);
        }
    }
}

/// Whether the program, and not only the library, has made a socket non-blocking.
pub fn is_set_by_program(fd: RawFd) -> bool {
    let held = lock();
    match sys::socket_number(fd).and_then(|inode| held.get(&inode)) {
        Some(held) => held.set_by_program,
        None => sys::status_flags(fd) & libc::O_NONBLOCK != 0,
    }
}

/// Records the program's wish if the socket is held, to be applied with the last release. Otherwise
/// calls `otherwise`, which applies it now.
pub fn set(
    fd: RawFd,
    nonblocking: bool,
    otherwise: impl FnOnce() -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut held = lock();
    match sys::socket_number(fd).and_then(|inode| held.get_mut(&inode)) {
        Some(held) => {
            held.set_by_program = nonblocking;
            Ok(())
        }
        None => otherwise(),
    }
}

fn lock() -> ForkGuard<'static, BTreeMap<u64, Held>> {
    HELD.lock()
}
