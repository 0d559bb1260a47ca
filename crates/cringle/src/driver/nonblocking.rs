//! Sockets that are made non-blocking for a while.
//!
//! `accept` and `connect` have no flag by which one call alone would not wait, and a worker must not be
//! caught in one: between the kernel's word that a connection is there and the call, somebody else may
//! have taken it. So the socket has `O_NONBLOCK` while an `accept` of a fiber waits on it, which all of
//! its clones share, and loses it with the last of them. Who may see that?
//!
//! - Fibers of any worker do not: what they wait for is kept here, and told apart from what the program
//!   has set ([`is_set_by_program`], [`set`]).
//! - A plain call of the library's, on a thread without a fiber, waits by `poll(2)` when it is told that
//!   it would have to (`net::Socket::accept_plainly`).
//! - A clone that is std's or another process's does: its `accept` may answer `WouldBlock` *while a fiber
//!   waits in one on the same socket*. Nothing here could prevent it.
//!
//! All clones of a socket are one open file, whose number (of the inode) no other has: that is what it
//! is known by here, as a descriptor's number is not the same for all of them. A socket that is just being
//! connected belongs to its frame alone; for it the same is done, since it costs next to nothing.

use crate::sys;
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard};

static HELD: Mutex<BTreeMap<u64, Held>> = Mutex::new(BTreeMap::new());

/// A socket that is non-blocking because of us.
struct Held {
    /// Operations that need it to be.
    holds: u32,
    /// What the program has asked for meanwhile.
    stays: bool,
}

/// The socket does not block until this is given back.
pub(super) struct Hold(u64);

impl Hold {
    /// `None` where the program has made it so, and where it is no socket.
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
        held.insert(inode, Held { holds: 1, stays: false });
        Some(Hold(inode))
    }

    pub(super) fn give_back(self, fd: RawFd) {
        let Hold(inode) = self;
        let mut held = lock();
        let Some(found) = held.get_mut(&inode) else { return };
        found.holds -= 1;
        if found.holds > 0 {
            return;
        }
        let stays = found.stays;
        held.remove(&inode);
        // A descriptor that somebody has closed meanwhile may be another file.
        if !stays && sys::socket_number(fd) == Some(inode) {
            sys::make_nonblocking(fd, false);
        }
    }
}

/// Whether a socket does not block because the program wants it so.
pub(crate) fn is_set_by_program(fd: RawFd) -> bool {
    let held = lock();
    match sys::socket_number(fd).and_then(|inode| held.get(&inode)) {
        Some(held) => held.stays,
        None => sys::status_flags(fd) & libc::O_NONBLOCK != 0,
    }
}

/// Takes note of what the program wants, where the socket is held; else it is not, and nothing is done.
pub(crate) fn set(
    fd: RawFd,
    nonblocking: bool,
    otherwise: impl FnOnce() -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut held = lock();
    match sys::socket_number(fd).and_then(|inode| held.get_mut(&inode)) {
        Some(held) => {
            held.stays = nonblocking;
            Ok(())
        }
        None => otherwise(),
    }
}

fn lock() -> MutexGuard<'static, BTreeMap<u64, Held>> {
    HELD.lock().expect("no code panics under this lock")
}
