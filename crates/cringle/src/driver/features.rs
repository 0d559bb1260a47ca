//! The optional features of io_uring, and sets of them.

/// A feature of io_uring that only newer kernels have. The library uses it where it exists;
/// [`Builder::without`](crate::Builder::without) turns it off, to measure it or to rule it out as
/// the cause of a problem.
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
}

impl Feature {
    /// All features; each stands after those that it needs.
    pub const ALL: [Feature; 11] = [
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
    ];
}

/// A set of [`Feature`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Features(u16);

impl Features {
    /// Every feature the library knows.
    pub fn all() -> Features {
        Feature::ALL.into_iter().fold(Features::default(), Features::with)
    }

    /// No feature.
    pub fn none() -> Features {
        Features::default()
    }

    /// The set with this feature in it.
    #[must_use]
    pub fn with(self, feature: Feature) -> Features {
        Features(self.0 | 1 << feature as u8)
    }

    /// The set without this feature.
    #[must_use]
    pub fn without(self, feature: Feature) -> Features {
        Features(self.0 & !(1 << feature as u8))
    }

    /// Whether the feature is in the set.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & 1 << feature as u8 != 0
    }

    /// The features in the set.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.into_iter().filter(move |&feature| self.has(feature))
    }
}
