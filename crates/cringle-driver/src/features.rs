//! The features of io_uring that the driver needs or uses: their opcodes, the first Linux release
//! with them, and the consequence of lacking them. `cringle doctor` reports by the same tables.

use crate::ring_use::{self, opcode};
use std::fmt;

/// A row for each feature, after the features that it needs: the first Linux release with it, the
/// consequence of lacking it, and its opcodes; none for a feature of the ring itself.
macro_rules! features {
    ($($(#[$doc:meta])* $feature:ident: $since:literal, $cost:literal, [$($op:ident),*];)*) => {
        /// A feature of io_uring that only newer kernels have. The library uses it where it exists;
        /// [`Builder::without`] turns it off, to measure it or to rule it out as the cause of a
        /// problem.
        ///
        /// [`Builder::without`]: https://docs.rs/cringle/latest/cringle/struct.Builder.html#method.without
        ///
        /// ```
        /// use cringle::Builder;
        /// use cringle::runtime::Feature;
        ///
        /// let builder = Builder::new().without(Feature::SendZc);
        /// assert_eq!(builder.run(|| 7)?, 7);
        /// # std::io::Result::Ok(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Feature {
            $($(#[$doc])* $feature,)*
        }

        impl Feature {
            /// All features; each stands after the features that it needs.
            ///
            /// ```
            /// assert!(cringle::runtime::Feature::ALL.contains(&cringle::runtime::Feature::Futex));
            /// ```
            pub const ALL: [Feature; 12] = [$(Feature::$feature),*];
        }

        const ROWS: [(&str, &str, &[u8]); Feature::ALL.len()] =
            [$(($since, $cost, &[$(opcode::$op::CODE),*])),*];
    };
}

features! {
    /// `IORING_SETUP_SUBMIT_ALL` (Linux 5.18): one bad entry does not stop the rest.
    SubmitAll: "5.18", "a bad entry stops those after it", [];
    /// `IORING_SETUP_SINGLE_ISSUER` (6.0): the kernel may assume one submitting thread.
    SingleIssuer: "6.0", "the kernel takes needless locks", [];
    /// `IORING_SETUP_DEFER_TASKRUN` (6.1): completions are processed when the worker enters the
    /// kernel, not in the middle of a fiber. Needs [`SingleIssuer`](Feature::SingleIssuer).
    DeferTaskrun: "6.1", "completions interrupt fibers", [];
    /// `IORING_SETUP_TASKRUN_FLAG` (5.19): a flag in the ring says that the kernel has deferred
    /// work.
    TaskrunFlag: "5.19", "the kernel is entered to look", [];
    /// `IORING_SETUP_NO_SQARRAY` (6.6): one indirection fewer for each submission.
    NoSqarray: "6.6", "one more memory access for each op", [];
    /// A registered ring descriptor (5.18): no look-up of the descriptor for each call.
    RegisteredRing: "5.18", "a descriptor look-up for each call", [];
    /// `IORING_ENTER_NO_IOWAIT` (6.15): an idle worker is not counted as waiting for a disk.
    NoIowait: "6.15", "idle workers count as load", [];
    /// `IORING_OP_MSG_RING` (5.18): a worker wakes another through its ring.
    MsgRing: "5.18", "workers wake each other by an eventfd", [MsgRingData];
    /// `IORING_OP_FTRUNCATE` (6.9).
    Ftruncate: "6.9", "set_len goes to the pool of threads", [Ftruncate];
    /// The ops on names, space and attributes of files, all of them together: `OPENAT2` (5.6),
    /// `UNLINKAT`, `RENAMEAT` (5.11), `MKDIRAT`, `SYMLINKAT`, `LINKAT` (5.15), `FALLOCATE`,
    /// `FADVISE`, `SYNC_FILE_RANGE` (5.6), `[F]GETXATTR`, `[F]SETXATTR` (5.19). Without it, threads
    /// of the pool make these calls.
    FileSystem: "5.19", "names and attributes go to the pool", [
        OpenAt2, UnlinkAt, RenameAt, MkDirAt, SymlinkAt,
        LinkAt, Fallocate, Fadvise, SyncFileRange, GetXattr,
        FGetXattr, SetXattr, FSetXattr
    ];
    /// `IORING_OP_SEND_ZC` (6.0): large sends without a copy. Without it the kernel copies them.
    SendZc: "6.0", "large sends are copied", [SendZc];
    /// `IORING_OP_FUTEX_WAIT` (6.7): an interposed wait for a futex ends by every wake-up, also by
    /// a system call that libc does not make. Without the feature, only libc's wake-ups end it.
    Futex: "6.7", "futexes wait in a queue of the process", [FutexWait];
}

impl Feature {
    /// Returns the first Linux release with the feature.
    #[doc(hidden)]
    pub fn since(self) -> &'static str {
        ROWS[self as usize].0
    }

    /// Returns the consequence of lacking the feature.
    #[doc(hidden)]
    pub fn cost(self) -> &'static str {
        ROWS[self as usize].1
    }

    /// Returns the opcodes that the feature consists of; none for a feature of the ring itself.
    #[doc(hidden)]
    pub fn opcodes(self) -> &'static [u8] {
        ROWS[self as usize].2
    }
}

/// A set of [`Feature`]s. `{:?}` prints their names.
///
/// ```
/// use cringle::runtime::{Feature, Features};
///
/// let features = Features::none().with(Feature::MsgRing);
/// assert_eq!(format!("{features:?}"), "{MsgRing}");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Features(u16);

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Features {
    /// The opcodes without which the driver refuses a ring, with their names.
    #[doc(hidden)]
    pub const NEEDED_OPS: [(u8, &str); 14] = [
        (opcode::Read::CODE, "READ"),
        (opcode::Write::CODE, "WRITE"),
        (opcode::Fsync::CODE, "FSYNC"),
        (opcode::OpenAt::CODE, "OPENAT"),
        (opcode::Close::CODE, "CLOSE"),
        (opcode::Statx::CODE, "STATX"),
        (opcode::PollAdd::CODE, "POLL_ADD"),
        (opcode::AsyncCancel::CODE, "ASYNC_CANCEL"),
        (opcode::Recv::CODE, "RECV"),
        (opcode::Send::CODE, "SEND"),
        (opcode::RecvMsg::CODE, "RECVMSG"),
        (opcode::SendMsg::CODE, "SENDMSG"),
        (opcode::Accept::CODE, "ACCEPT"),
        (opcode::Connect::CODE, "CONNECT"),
    ];

    /// The numbers and names of all ops that the driver submits.
    #[doc(hidden)]
    pub const OPS: &[(u8, &str)] = ring_use::OPS;

    /// The bits and names of the flags of its entries.
    #[doc(hidden)]
    pub const ENTRY_FLAGS: &[(u8, &str)] = ring_use::ENTRY_FLAGS;

    /// Its requests of `io_uring_register`.
    #[doc(hidden)]
    pub const REQUESTS: &[ring_use::Request] = ring_use::REQUESTS;

    /// Every feature the library knows.
    ///
    /// ```
    /// use cringle::runtime::{Feature, Features};
    ///
    /// assert_eq!(Features::all().iter().count(), Feature::ALL.len());
    /// ```
    pub fn all() -> Features {
        Feature::ALL.into_iter().fold(Features::default(), Features::with)
    }

    /// No feature.
    ///
    /// ```
    /// assert_eq!(cringle::runtime::Features::none().iter().count(), 0);
    /// ```
    pub fn none() -> Features {
        Features::default()
    }

    /// The set with this feature in it.
    ///
    /// ```
    /// use cringle::runtime::{Feature, Features};
    ///
    /// assert!(Features::none().with(Feature::SendZc).has(Feature::SendZc));
    /// ```
    #[must_use]
    pub fn with(self, feature: Feature) -> Features {
        Features(self.0 | 1 << feature as u8)
    }

    /// The set without this feature.
    ///
    /// ```
    /// use cringle::runtime::{Feature, Features};
    ///
    /// assert!(!Features::all().without(Feature::SendZc).has(Feature::SendZc));
    /// ```
    #[must_use]
    pub fn without(self, feature: Feature) -> Features {
        Features(self.0 & !(1 << feature as u8))
    }

    /// Whether the feature is in the set.
    ///
    /// ```
    /// use cringle::runtime::{self, Driver, Feature};
    ///
    /// cringle::run(|| {
    ///     if let Driver::Uring(features) = runtime::driver() {
    ///         println!("zero-copy sends: {}", features.has(Feature::SendZc));
    ///     }
    /// });
    /// ```
    pub fn has(self, feature: Feature) -> bool {
        self.0 & 1 << feature as u8 != 0
    }

    /// The features in the set.
    ///
    /// ```
    /// use cringle::runtime::{Feature, Features};
    ///
    /// let features = Features::none().with(Feature::Futex).with(Feature::MsgRing);
    /// assert!(features.iter().eq([Feature::MsgRing, Feature::Futex]));
    /// ```
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.into_iter().filter(move |&feature| self.has(feature))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_text_names_the_features() {
        let some = Features::none().with(Feature::SendZc).with(Feature::SubmitAll);
        assert_eq!(format!("{some:?}"), "{SubmitAll, SendZc}");
    }
}
