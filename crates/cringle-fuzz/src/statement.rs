//! The statements of a program: what its fibers do.

use std::sync::Arc;
use std::time::Duration;

/// The statements of one fiber.
#[derive(Debug)]
pub(super) struct Body {
    /// The file that the fiber writes to, and its region there.
    pub(super) file: usize,
    pub(super) region: usize,
    /// Whether this fiber or one above it may be cancelled, so that the content of its region is
    /// not determined.
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
    /// Appends to the file that only this fiber uses.
    Append {
        len: usize,
        salt: u64,
    },
    /// Truncates the fiber's own file to half its length, and reads it from the start.
    CutAndRead,
    Spawn {
        local: bool,
        end: End,
        body: Arc<Body>,
    },
    Scope {
        children: Vec<(bool, Arc<Body>)>,
        /// Fibers that run until the scope cancels them at its end.
        daemons: Vec<Arc<Body>>,
        /// The number of `on_exit` closures.
        exits: usize,
    },
    /// A scope whose fibers are cancelled.
    CancelScope {
        how: CancelBy,
        delay: Delay,
        children: Vec<(bool, Arc<Body>)>,
        exits: usize,
    },
    /// A body with a deadline.
    Timeout {
        limit: Duration,
        body: Arc<Body>,
    },
    /// A body in a protected call; with `cancelled`, the fiber is cancelled before it or during it.
    Protect {
        cancelled: Option<Delay>,
        body: Arc<Body>,
    },
    /// Several bodies, run by one of the functions that run closures concurrently.
    Combine {
        by: Combine,
        bodies: Vec<Arc<Body>>,
    },
    /// Fibers that share a lock, a channel or the like.
    Share(Share),
    /// A fiber that panics, and whose payload its joiner receives.
    Panic {
        payload: u64,
    },
    /// A fiber that panics, with a destructor that writes to the file.
    Unwind {
        span: Span,
        salt: u64,
    },
    /// A wait that only a cancel ends.
    Never {
        what: Never,
    },
    /// Parks until another fiber has yielded this often, set a flag and unparked it.
    Park {
        yields: u64,
    },
    Unblock {
        value: u64,
    },
    /// Another fiber sends bytes to this one.
    Talk {
        len: usize,
        salt: u64,
        over: Transport,
        ready: bool,
    },
}

/// What the bytes of [`Stmt::Talk`] pass through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Pipe,
    SocketPair,
    /// A socket that a listener accepted.
    Connection,
}

/// What cancels a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CancelBy {
    Owner,
    Child,
    /// A fiber of a sibling scope cancels the scope around both.
    Sibling,
    /// A fiber of a `try_scope` fails.
    Failure,
    /// A fiber of a `try_scope` panics.
    Panic,
}

/// How long to wait before a cancel.
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
    ParMapWorkers,
    /// The first to return wins; the others are cancelled.
    Race,
    Any,
}

/// Fibers that share a synchronisation primitive for some rounds. A round may have a deadline, and
/// all of them may be cancelled together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) what: Shared,
    pub(super) fibers: usize,
    pub(super) rounds: usize,
    pub(super) local: bool,
    /// Whether some rounds have a deadline.
    pub(super) has_deadlines: bool,
    /// When all fibers are cancelled, if they are.
    pub(super) cancel_after: Option<Delay>,
    pub(super) salt: u64,
}

/// What the fibers of a [`Share`] share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shared {
    Mutex,
    RwLock,
    Semaphore,
    Condvar,
    /// A counter of tokens with a condition variable that is notified once for each token.
    Tokens,
    /// A permit (or a read lock) that is held until every other fiber had one, while some of them
    /// wait for all permits (or to write) and give up.
    Patience {
        rwlock: bool,
    },
    Barrier,
    WaitGroup,
    /// Channels, with their capacity.
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

/// The calls by which bytes are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    At,
    Vectored,
    Batch,
    BatchExact,
    Fixed,
    Cursor,
}

/// A wait that only a cancel ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Never {
    Byte,
    Readiness,
    Unpark,
    Timer,
}

/// What happens to a fiber's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    JoinedNow,
    /// Joined at the end of the spawning fiber.
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
