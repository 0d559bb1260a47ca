//! What a program's fibers do.

use std::sync::Arc;
use std::time::Duration;

/// What one fiber does.
#[derive(Debug)]
pub(super) struct Body {
    /// The part of the files that is its own: which file, which part.
    pub(super) file: usize,
    pub(super) region: usize,
    /// It may be cut short, or belongs to one that may: nothing is said about its part.
    pub(super) loose: bool,
    pub(super) stmts: Vec<Stmt>,
}

#[derive(Debug)]
pub(super) enum Stmt {
    Yield,
    Sleep {
        micros: u64,
    },
    Write {
        span: Span,
        salt: u64,
        way: Way,
    },
    Read {
        span: Span,
        way: Way,
    },
    Sync {
        data_only: bool,
    },
    Reopen,
    Stat,
    /// To a file of the fiber's own, at its end.
    Append {
        len: usize,
        salt: u64,
    },
    /// The fiber's own file, cut to a half, and read from the start.
    CutAndRead,
    Spawn {
        local: bool,
        end: End,
        body: Arc<Body>,
    },
    Scope {
        children: Vec<(bool, Arc<Body>)>,
        /// Fibers that go on until they are cancelled at the scope's end.
        daemons: Vec<Arc<Body>>,
        /// How many closures are called at its end.
        exits: usize,
    },
    /// A scope whose fibers are cancelled.
    Cut {
        how: Cut,
        delay: Delay,
        children: Vec<(bool, Arc<Body>)>,
        exits: usize,
    },
    /// A body that has so much time.
    Timeout {
        limit: Duration,
        body: Arc<Body>,
    },
    /// A body that no cancel reaches; the fiber is cancelled before it or meanwhile, or is not.
    Protect {
        cancelled: Option<Delay>,
        body: Arc<Body>,
    },
    /// Several bodies by one of the functions that run closures beside each other.
    Combine {
        by: Combine,
        bodies: Vec<Arc<Body>>,
    },
    /// Fibers that use something together.
    Share(Share),
    /// A fiber that panics, which its joiner is told.
    Panic {
        payload: u64,
    },
    /// A fiber that panics, with a destructor that writes.
    Unwind {
        span: Span,
        salt: u64,
    },
    /// Waits for what never comes: only for those that are cancelled.
    Never {
        what: Never,
    },
    /// Parks until another fiber, after so many yields, has said so and unparked it.
    Park {
        yields: u64,
    },
    Unblock {
        value: u64,
    },
    /// Bytes from a fiber to this one.
    Talk {
        len: usize,
        salt: u64,
        over: Over,
        ready: bool,
    },
}

/// What bytes go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Pipe,
    SocketPair,
    /// A socket that has come to a listener.
    Connection,
}

/// Who cancels a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Owner,
    Child,
    /// A fiber of a scope beside it, in one that is around both.
    Sibling,
    /// A fiber of a `try_scope` fails.
    Failure,
    /// A fiber of a `try_scope` panics.
    Panic,
}

/// What passes before something happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Delay {
    Yields(u64),
    Sleep(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combine {
    Join,
    JoinAll,
    ParMap,
    /// The first wins; the others are cancelled.
    Race,
    Any,
}

/// Fibers that use something together, in so many rounds, and may run out of time in each or be
/// cancelled together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) what: Shared,
    pub(super) fibers: usize,
    pub(super) rounds: usize,
    pub(super) local: bool,
    /// Whether some tries have a deadline.
    pub(super) hurried: bool,
    pub(super) cut: Option<Delay>,
    pub(super) salt: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shared {
    Mutex,
    RwLock,
    Semaphore,
    Condvar,
    /// Tokens for which one is notified each.
    Tokens,
    /// A permit (or a read lock) is held until all others had one, some of whom want all at first.
    Patience {
        rwlock: bool,
    },
    Barrier,
    WaitGroup,
    /// Channels, that hold so many values.
    Mpsc(Option<usize>),
    Mpmc(usize),
    Oneshot,
    Watch,
}

/// A part of the fiber's region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) len: usize,
}

/// By which calls bytes are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    At,
    Vectored,
    Batch,
    BatchExact,
    Fixed,
    Cursor,
}

/// What never comes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Never {
    Byte,
    Readiness,
    Unpark,
    Timer,
}

/// What becomes of a fiber's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    JoinedNow,
    /// When the spawning fiber ends.
    JoinedLater,
    Detached,
}

impl Delay {
    pub(super) fn pass(self) {
        match self {
            Delay::Yields(count) => (0..count).for_each(|_| cringle::fiber::yield_now()),
            Delay::Sleep(duration) => cringle::fiber::sleep(duration),
        }
    }
}
