//! The kinds of waits.
//!
//! # A new kind of wait
//!
//! It is a row of `waits!`, before `Answers`: the code that suspends the fiber names it. Traces
//! show the row's word, and dumps and debuggers its phrase. The compiler refuses a row after
//! `Answers`, and names no other place. By hand:
//!
//! - [`Wait::is_cancellable`]: a cancel ends the wait, unless the wait is listed there;
//! - `make_ready` in `worker/wake.rs` and `awaits_wake` in `worker/moving.rs`: a wait that no
//!   wake-up ends, as `Ops` and `Room`;
//! - `for_what` in `diagnostics/dump/report.rs` of `cringle-run`: an arm, if a dump describes the
//!   wait by more than its phrase and an address;
//! - `FOR_OTHERS` in `diagnostics/stall.rs` of `cringle-run`: a wait that only another fiber or
//!   thread ends. Without an entry, a deadlock with such a wait is suspected only if `for_what`
//!   returns a variant of its own, as for `Join`, which `waits_for_others` knows;
//! - `fiber/debug_info.rs`: a wait that the script for debuggers (`crates/cringle-run/debugger`)
//!   distinguishes.
//!
//! A wait may also name its object, such as the lock, by a `Target` (`wait_target.rs`). A new kind
//! of *object* (not of wait) needs: an arm of `for_what`, which the compiler names; and by hand its
//! number in `TargetKind` and the reader of its parts, in
//! `crates/cringle-run/debugger/cringle_debug.py`.

/// A row for each wait: its word, and the object of the wait.
macro_rules! waits {
    ($($(#[$doc:meta])* $wait:ident: $word:literal, $phrase:literal;)*) => {
        /// The kind of a suspended fiber's wait. Every kind but [`Wait::Ops`] and [`Wait::Room`]
        /// may also end for no reason, and the waiting code checks again.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Wait {
            $($(#[$doc])* $wait,)*
        }

        /// Each wait in one word, in the order of [`Wait`]; the last is of a fiber that yields.
        pub const WAIT_WORDS: [&str; WAIT_PHRASES.len() + 1] =
            [$($word,)* "yield"];

        /// The object of each wait, in the order of [`Wait`].
        pub const WAIT_PHRASES: [&str; Wait::Answers as usize + 1] =
            [$($phrase),*];
    };
}

waits! {
    /// The last completion of its ops, which alone resumes it (**I1**).
    Ops: "ops", "an operation in the kernel";
    /// Room among the ops in flight.
    Room: "room", "room among the operations in flight";
    Park: "park", "an unpark";
    Sleep: "sleep", "a timer";
    Join: "join", "another fiber's end";
    /// The fibers of a scope. No cancel ends it, because they borrow from this fiber's frame.
    Scope: "scope", "the fibers of a scope";
    /// A closure on the pool, or a call of libc there. No cancel ends it, because it borrows from
    /// this fiber's frame.
    Unblock: "unblock", "a closure or a call of libc on a thread of the pool";
    /// A lock of the library.
    Lock: "lock", "a lock";
    Permit: "permit", "a permit of a semaphore";
    Channel: "channel", "the other side of a channel";
    Condvar: "condvar", "a notification";
    Barrier: "barrier", "the other fibers at a barrier";
    /// The end of an initialisation that another fiber has begun.
    Once: "once", "an initialisation";
    Group: "group", "the members of a wait group";
    Watch: "watch", "a new value";
    /// A wake-up by the waker of a future.
    Future: "future", "a future";
    /// A sync of a file that another caller performs.
    Sync: "sync", "a sync of its file by another caller";
    /// Its return from a thread of its own. Neither a wake-up nor a cancel ends it.
    Thread: "thread", "its return from a thread of its own";
    /// The answers of other workers to a dump.
    Answers: "answers", "other workers' answers to a dump";
}

impl Wait {
    /// Whether a cancel ends the wait. (Ops end by their own completion, which a cancel hastens.)
    pub(crate) fn is_cancellable(self) -> bool {
        !matches!(
            self,
            Wait::Ops | Wait::Scope | Wait::Unblock | Wait::Thread | Wait::Answers
        )
    }

    pub fn word(self) -> &'static str {
        WAIT_WORDS[self as usize]
    }

    /// The object of the wait, as in "waits for a lock".
    pub fn describe(self) -> &'static str {
        WAIT_PHRASES[self as usize]
    }
}
