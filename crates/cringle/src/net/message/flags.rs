//! `MSG_…`.

use std::ffi::c_int;
use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// How a `sendmsg` or `recvmsg` is to behave, and what it says of a message (`MSG_…`).
///
/// `MSG_NOSIGNAL` and `MSG_CMSG_CLOEXEC` are always set: a broken connection is an error, and descriptors
/// that come are closed on `exec`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct MsgFlags(c_int);

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $value:ident;)*) => {
        impl MsgFlags {
            $($(#[$doc])* pub const $name: MsgFlags = MsgFlags(libc::$value);)*

            const ALL: &[(&str, MsgFlags)] = &[$((stringify!($name), MsgFlags::$name)),*];
        }
    };
}

flags! {
    /// Leaves what is received, to be received again. (Descriptors come each time: as new ones.)
    PEEK = MSG_PEEK;
    /// The length of a message is that of the whole, though it does not fit. From a TCP connection: so
    /// many bytes are dropped unread.
    TRUNC = MSG_TRUNC;
    /// Waits until all of the slices are full, or sent; a signal, an error or the end may come earlier, and
    /// so may what comes beside the bytes.
    WAITALL = MSG_WAITALL;
    /// Does not wait: `WouldBlock`.
    DONTWAIT = MSG_DONTWAIT;
    /// Urgent data of TCP.
    OOB = MSG_OOB;
    /// From the queue of errors: what came of earlier messages, or when they were sent.
    ERRQUEUE = MSG_ERRQUEUE;
    /// More follows at once: a segment that is not full waits for it.
    MORE = MSG_MORE;
    /// The end of a record.
    EOR = MSG_EOR;
    /// Only to hosts of the networks that this one is in.
    DONTROUTE = MSG_DONTROUTE;
    /// The other side answers: its address need not be asked for anew.
    CONFIRM = MSG_CONFIRM;
}

impl MsgFlags {
    /// None.
    pub const fn empty() -> MsgFlags {
        MsgFlags(0)
    }

    /// Whether all of these are set.
    pub const fn contains(self, flags: MsgFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    pub(super) fn bits(self) -> c_int {
        self.0
    }

    /// Those that the kernel has set, as far as they have a name here.
    pub(super) fn said(bits: c_int) -> MsgFlags {
        let known = MsgFlags::ALL.iter().fold(0, |known, (_, flag)| known | flag.0);
        MsgFlags(bits & known)
    }
}

impl BitOr for MsgFlags {
    type Output = MsgFlags;

    fn bitor(self, other: MsgFlags) -> MsgFlags {
        MsgFlags(self.0 | other.0)
    }
}

impl BitOrAssign for MsgFlags {
    fn bitor_assign(&mut self, other: MsgFlags) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for MsgFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = MsgFlags::ALL.iter().filter(|(_, flag)| self.contains(*flag));
        f.debug_set().entries(set.map(|(name, _)| name)).finish()
    }
}
