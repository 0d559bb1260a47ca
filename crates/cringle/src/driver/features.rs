//! The features of io_uring that the driver needs or uses: their opcodes, the first Linux release
//! with them, and the consequence of lacking them. `cringle doctor` reports by the same tables.

use io_uring::opcode;
use std::fmt;

/// A feature of io_uring that only newer kernels have. The library uses it where it exists;
/// [`Builder::without`](crate::Builder::without) turns it off, to measure it or to rule it out as
/// the cause of a problem.
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
    /// `IORING_SETUP_SUBMIT_ALL` (Linux 5.18): one bad entry does not stop the rest.
    SubmitAll,
    /// `IORING_SETUP_SINGLE_ISSUER` (6.0): the kernel may assume one submitting thread.
    SingleIssuer,
    /// `IORING_SETUP_DEFER_TASKRUN` (6.1): completions are processed when the worker enters the
    /// kernel, not in the middle of a fiber. Needs [`SingleIssuer`](Feature::SingleIssuer).
    DeferTaskrun,
    /// `IORING_SETUP_TASKRUN_FLAG` (5.19): a flag in the ring says that the kernel has deferred
    /// work.
    TaskrunFlag,
    /// `IORING_SETUP_NO_SQARRAY` (6.6): one indirection fewer for each submission.
    NoSqarray,
    /// A registered ring descriptor (5.18): no look-up of the descriptor for each call.
    RegisteredRing,
    /// `IORING_ENTER_NO_IOWAIT` (6.15): an idle worker is not counted as waiting for a disk.
    NoIowait,
    /// `IORING_OP_MSG_RING` (5.18): a worker wakes another through its ring.
    MsgRing,
    /// `IORING_OP_FTRUNCATE` (6.9).
    Ftruncate,
    /// The ops on names, space and attributes of files, all of them together: `OPENAT2` (5.6),
    /// `UNLINKAT`, `RENAMEAT` (5.11), `MKDIRAT`, `SYMLINKAT`, `LINKAT` (5.15), `FALLOCATE`,
    /// `FADVISE`, `SYNC_FILE_RANGE` (5.6), `[F]GETXATTR`, `[F]SETXATTR` (5.19). Without it, threads
    /// of the pool make these calls.
    FileSystem,
    /// `IORING_OP_SEND_ZC` (6.0): large sends without a copy. Without it the kernel copies them.
    SendZc,
    /// `IORING_OP_FUTEX_WAIT` (6.7): an interposed wait for a futex ends by every wake-up, also by
    /// a system call that libc does not make. Without the feature, only libc's wake-ups end it.
    Futex,
}

impl Feature {
    /// All features; each stands after the features that it needs.
    ///
    /// ```
    /// assert!(cringle::runtime::Feature::ALL.contains(&cringle::runtime::Feature::Futex));
    /// ```
    pub const ALL: [Feature; 12] = [
        Feature::SubmitAll,
        Feature::SingleIssuer,
        Feature::DeferTaskrun,
        Feature::TaskrunFlag,
        Feature::NoSqarray,
        Feature::RegisteredRing,
        Feature::NoIowait,
        Feature::MsgRing,
        Feature::Ftruncate,
        Feature::FileSystem,
        Feature::SendZc,
        Feature::Futex,
    ];

    /// Returns the first Linux release with the feature.
    #[doc(hidden)]
    pub fn since(self) -> &'static str {
        match self {
            Feature::SubmitAll | Feature::RegisteredRing | Feature::MsgRing => "5.18",
            Feature::TaskrunFlag | Feature::FileSystem => "5.19",
            Feature::SingleIssuer | Feature::SendZc => "6.0",
            Feature::DeferTaskrun => "6.1",
            Feature::NoSqarray => "6.6",
            Feature::Futex => "6.7",
            Feature::Ftruncate => "6.9",
            Feature::NoIowait => "6.15",
        }
    }

    /// Returns the consequence of lacking the feature.
    #[doc(hidden)]
    pub fn cost(self) -> &'static str {
        match self {
            Feature::SubmitAll => "a bad entry stops those after it",
            Feature::SingleIssuer => "the kernel takes needless locks",
            Feature::DeferTaskrun => "completions interrupt fibers",
            Feature::TaskrunFlag => "the kernel is entered to look",
            Feature::NoSqarray => "one more memory access for each op",
            Feature::RegisteredRing => "a descriptor look-up for each call",
            Feature::NoIowait => "idle workers count as load",
            Feature::MsgRing => "workers wake each other by an eventfd",
            Feature::Ftruncate => "set_len goes to the pool of threads",
            Feature::FileSystem => "names and attributes go to the pool",
            Feature::SendZc => "large sends are copied",
            Feature::Futex => "futexes wait in a queue of the process",
        }
    }

    /// Returns the opcodes that the feature consists of; none for a feature of the ring itself.
    #[doc(hidden)]
    pub fn opcodes(self) -> &'static [u8] {
        match self {
            Feature::MsgRing => &[opcode::MsgRingData::CODE],
            Feature::Ftruncate => &[opcode::Ftruncate::CODE],
            Feature::SendZc => &[opcode::SendZc::CODE],
            Feature::Futex => &[opcode::FutexWait::CODE],
            Feature::FileSystem => &[
                opcode::OpenAt2::CODE,
                opcode::UnlinkAt::CODE,
                opcode::RenameAt::CODE,
                opcode::MkDirAt::CODE,
                opcode::SymlinkAt::CODE,
                opcode::LinkAt::CODE,
                opcode::Fallocate::CODE,
                opcode::Fadvise::CODE,
                opcode::SyncFileRange::CODE,
                opcode::GetXattr::CODE,
                opcode::FGetXattr::CODE,
                opcode::SetXattr::CODE,
                opcode::FSetXattr::CODE,
            ],
            Feature::SubmitAll
            | Feature::SingleIssuer
            | Feature::DeferTaskrun
            | Feature::TaskrunFlag
            | Feature::NoSqarray
            | Feature::RegisteredRing
            | Feature::NoIowait => &[],
        }
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
