//! What a fiber waits for.

/// What a suspended fiber waits for. Everything but [`Wait::Ops`] may also end for no reason: the
/// waiting code looks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Wait {
    /// The last completion of its ops. Nothing else resumes it (**I1**).
    Ops,
    /// Room among the ops in flight.
    Room,
    Park,
    Sleep,
    Join,
    /// The fibers of a scope. Cannot be cancelled: they borrow from this fiber's frame.
    Scope,
    /// A closure on the pool. Cannot be cancelled: it borrows from this fiber's frame.
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
    /// Whatever a future waits for.
    Future,
    /// What other workers say of their fibers.
    Answers,
}

/// Waits by one word, in the order of [`Wait`]; the last is for a fiber that only lets others run.
pub(in crate::runtime) const WAIT_WORDS: [&str; 18] = [
    "ops", "room", "park", "sleep", "join", "scope", "unblock", "lock", "permit", "channel",
    "condvar", "barrier", "once", "group", "watch", "future", "answers", "yield",
];

const _: () = assert!(WAIT_WORDS.len() == Wait::Answers as usize + 2, "a word for each wait");

impl Wait {
    /// Whether a cancel ends the wait. Ops end by their own completion, which a cancel hastens.
    pub(in crate::runtime) fn is_cancellable(self) -> bool {
        match self {
            Wait::Room | Wait::Park | Wait::Sleep | Wait::Join | Wait::Lock => true,
            Wait::Permit | Wait::Channel | Wait::Condvar | Wait::Barrier => true,
            Wait::Once | Wait::Group | Wait::Watch | Wait::Future => true,
            Wait::Ops | Wait::Scope | Wait::Unblock | Wait::Answers => false,
        }
    }

    #[cfg(feature = "tracing")]
    pub(in crate::runtime) fn word(self) -> &'static str {
        WAIT_WORDS[self as usize]
    }

    /// For the report of who waits for what.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Wait::Ops => "an operation in the kernel",
            Wait::Room => "room among the operations in flight",
            Wait::Park => "an unpark",
            Wait::Sleep => "a timer",
            Wait::Join => "another fiber's end",
            Wait::Scope => "the fibers of a scope",
            Wait::Unblock => "a closure on the blocking pool",
            Wait::Lock => "a lock",
            Wait::Permit => "a permit of a semaphore",
            Wait::Channel => "the other side of a channel",
            Wait::Condvar => "a notification",
            Wait::Barrier => "the others at a barrier",
            Wait::Once => "an initialisation",
            Wait::Group => "the members of a wait group",
            Wait::Watch => "a new value",
            Wait::Future => "a future",
            Wait::Answers => "what other workers say of their fibers",
        }
    }
}
