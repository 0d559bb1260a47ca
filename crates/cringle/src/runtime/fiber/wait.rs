//! The kinds of waits.

/// The kind of a suspended fiber's wait. Every kind but [`Wait::Ops`] may also end for no reason,
/// and the waiting code checks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Wait {
    /// The last completion of its ops, which alone resumes it (**I1**).
    Ops,
    /// Room among the ops in flight.
    Room,
    Park,
    Sleep,
    Join,
    /// The fibers of a scope. No cancel ends it, because they borrow from this fiber's frame.
    Scope,
    /// A closure on the pool, or a call of libc there. No cancel ends it, because it borrows from
    /// this fiber's frame.
    Unblock,
    /// A lock of the library.
    Lock,
    Permit,
    Channel,
    Condvar,
    Barrier,
    /// The end of an initialisation that another fiber has begun.
    Once,
    Group,
    Watch,
    /// A wake-up by the waker of a future.
    Future,
    /// A sync of a file that another caller performs.
    Sync,
    /// The answers of other workers to a dump.
    Answers,
}

/// Each wait in one word, in the order of [`Wait`]. The last word is for a fiber that yields.
pub(in crate::runtime) const WAIT_WORDS: [&str; 19] = [
    "ops", "room", "park", "sleep", "join", "scope", "unblock", "lock", "permit", "channel",
    "condvar", "barrier", "once", "group", "watch", "future", "sync", "answers", "yield",
];

/// The object of each wait, in the order of [`Wait`].
pub(in crate::runtime) const WAIT_PHRASES: [&str; 18] = [
    "an operation in the kernel",
    "room among the operations in flight",
    "an unpark",
    "a timer",
    "another fiber's end",
    "the fibers of a scope",
    "a closure or a call of libc on a thread of the pool",
    "a lock",
    "a permit of a semaphore",
    "the other side of a channel",
    "a notification",
    "the other fibers at a barrier",
    "an initialisation",
    "the members of a wait group",
    "a new value",
    "a future",
    "a sync of its file by another caller",
    "other workers' answers to a dump",
];

const _: () = assert!(WAIT_WORDS.len() == Wait::Answers as usize + 2, "a word for each wait");
const _: () = assert!(WAIT_PHRASES.len() == Wait::Answers as usize + 1, "a phrase for each wait");

impl Wait {
    /// Whether a cancel ends the wait. (Ops end by their own completion, which a cancel hastens.)
    pub(in crate::runtime) fn is_cancellable(self) -> bool {
        match self {
            Wait::Room | Wait::Park | Wait::Sleep | Wait::Join | Wait::Lock => true,
            Wait::Permit | Wait::Channel | Wait::Condvar | Wait::Barrier => true,
            Wait::Once | Wait::Group | Wait::Watch | Wait::Future | Wait::Sync => true,
            Wait::Ops | Wait::Scope | Wait::Unblock | Wait::Answers => false,
        }
    }

    #[cfg(feature = "tracing")]
    pub(in crate::runtime) fn word(self) -> &'static str {
        WAIT_WORDS[self as usize]
    }

    /// The object of the wait, as in "waits for a lock".
    pub(crate) fn describe(self) -> &'static str {
        WAIT_PHRASES[self as usize]
    }
}
