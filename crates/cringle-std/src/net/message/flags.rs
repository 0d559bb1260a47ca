//! The flags of `sendmsg` and `recvmsg` (`MSG_…`).

use std::ffi::c_int;
use std::fmt;
use std::ops::BitOrAssign;

/// Flags of a `sendmsg` or `recvmsg`, and of a received message (`MSG_…`).
///
/// The library always sets `MSG_NOSIGNAL` and `MSG_CMSG_CLOEXEC`: a broken connection is an error
/// instead of a signal, and received descriptors are closed on `exec`.
///
/// ```
/// use cringle::net::MsgFlags;
///
/// let mut flags = MsgFlags::PEEK | MsgFlags::DONTWAIT;
/// assert!(flags.contains(MsgFlags::PEEK) && !flags.contains(MsgFlags::OOB));
/// flags |= MsgFlags::OOB;
/// assert!(flags.contains(MsgFlags::OOB));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct MsgFlags(c_int);

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $value:ident;)*) => {
        impl MsgFlags {
            $(
                $(#[$doc])*
                ///
                /// ```
                #[doc = concat!("let flags = cringle::net::MsgFlags::", stringify!($name), ";")]
                /// assert!(flags.contains(flags));
                /// ```
                pub const $name: MsgFlags = MsgFlags(libc::$value);
            )*

            const ALL: &[(&str, MsgFlags)] = &[$((stringify!($name), MsgFlags::$name)),*];
        }
    };
}

flags! {
    /// Receives without removing the message from the queue. Each such call receives new copies of
    /// the message's descriptors.
    PEEK = MSG_PEEK;
    /// Returns the length of the whole message, even if it does not fit. On a TCP connection,
    /// discards that number of bytes instead of receiving them.
    TRUNC = MSG_TRUNC;
    /// Waits until all slices are full, or sent. A signal, an error, the end of the stream, or
    /// ancillary data may end the call earlier. With `PEEK` it has no effect.
    WAITALL = MSG_WAITALL;
    /// Fails with `WouldBlock` instead of waiting.
    DONTWAIT = MSG_DONTWAIT;
    /// Sends or receives TCP's urgent data.
    OOB = MSG_OOB;
    /// Receives from the error queue: errors or timestamps of earlier messages.
    ERRQUEUE = MSG_ERRQUEUE;
    /// Announces that more data follows at once, so that a partial segment waits for it.
    MORE = MSG_MORE;
    /// Marks the end of a record.
    EOR = MSG_EOR;
    /// Sends only to hosts on directly connected networks.
    DONTROUTE = MSG_DONTROUTE;
    /// Confirms that the peer has answered, so that its link-layer address need not be resolved
    /// again.
    CONFIRM = MSG_CONFIRM;
}

impl MsgFlags {
    /// Returns the empty set of flags.
    ///
    /// ```
    /// use cringle::net::MsgFlags;
    ///
    /// assert!(!MsgFlags::empty().contains(MsgFlags::PEEK));
    /// ```
    pub const fn empty() -> MsgFlags {
        MsgFlags(0)
    }

    /// Returns whether all of `flags` are set.
    ///
    /// ```
    /// use cringle::net::MsgFlags;
    ///
    /// assert!((MsgFlags::PEEK | MsgFlags::OOB).contains(MsgFlags::OOB));
    /// ```
    pub const fn contains(self, flags: MsgFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    pub(super) fn bits(self) -> c_int {
        self.0
    }

    /// Returns the flags that the kernel has set and that have a name here.
    pub(super) fn from_kernel(bits: c_int) -> MsgFlags {
        let known = MsgFlags::ALL.iter().fold(0, |known, (_, flag)| known | flag.0);
        MsgFlags(bits & known)
    }
}

flags_or!(MsgFlags);

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
