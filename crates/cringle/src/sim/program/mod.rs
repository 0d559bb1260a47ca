//! Random programs: what the library is tested with, in a simulation and against the ring.
//!
//! A [`Program`] is drawn from a seed: fibers that spawn, scope, sleep, park, write, read, sync,
//! talk and panic, that cancel each other, run out of time, and share locks and channels. What it computes does not depend on what ends when or what has to be tried again,
//! because each fiber writes to a part of the files that is its own: so there is one right outcome,
//! which [`Program::expected`] finds without the library, and a simulation with any faults, or the
//! ring, must come to the same. Fibers that are cut short (left behind, cancelled, out of time) have
//! parts of their own too, about which nothing is said. What holds of them all the same is checked
//! where it happens: whoever is told of a cancel or a deadline has one around it that has come
//! (`frames`), what ended by itself came to what it should, and nothing shared is lost.
//!
//! A new kind of statement is a variant of `Stmt`: the compiler names the three places (drawing it,
//! expecting it, doing it) that have to know it.
//!
//! ```
//! use cringle::sim::program::{Program, check};
//!
//! check(17)?;
//!
//! let program = Program::new(17);
//! let place = std::env::temp_dir().join(format!("cringle-program-{}", std::process::id()));
//! std::fs::create_dir_all(&place)?;
//! assert_eq!(program.run_on_ring(1, &place)?, program.expected());
//! # std::fs::remove_dir_all(&place)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod channels;
mod check;
mod combine;
mod cut;
mod draw;
mod env;
mod expect;
mod frames;
mod handover;
mod locks;
mod peers;
mod perform;
mod share;
mod transfer;

#[cfg(test)]
pub(super) use check::check_sabotaged;
pub use check::{Checked, check};
pub use expect::Outcome;

use crate::driver::sim::Rng;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a file that belong to one fiber.
const REGION_BYTES: usize = 2048;

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Program {
    /// How many files the regions are in.
    files: usize,
    /// How many regions each file has.
    regions: usize,
    root: Arc<Body>,
}

/// What one fiber does.
#[derive(Debug)]
struct Body {
    /// The part of the files that is its own: which file, which part.
    file: usize,
    region: usize,
    /// It may be cut short, or belongs to one that may: nothing is said about its part.
    loose: bool,
    stmts: Vec<Stmt>,
}

#[derive(Debug)]
enum Stmt {
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
    /// Bytes through a pipe or a pair of sockets, from a fiber to this one.
    Talk {
        len: usize,
        salt: u64,
        socket: bool,
        ready: bool,
    },
}

/// Who cancels a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
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
enum Delay {
    Yields(u64),
    Sleep(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Combine {
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
struct Share {
    what: Shared,
    fibers: usize,
    rounds: usize,
    local: bool,
    /// Whether some tries have a deadline.
    hurried: bool,
    cut: Option<Delay>,
    salt: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shared {
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
struct Span {
    start: usize,
    len: usize,
}

/// By which calls bytes are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    At,
    Vectored,
    Batch,
    BatchExact,
    Fixed,
    Cursor,
}

/// What never comes.
#[derive(Clone, Copy, Debug)]
enum Never {
    Byte,
    Readiness,
    Unpark,
    Timer,
}

/// What becomes of a fiber's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    JoinedNow,
    /// When the spawning fiber ends.
    JoinedLater,
    Detached,
}

impl Program {
    /// The program of this seed.
    pub fn new(seed: u64) -> Program {
        draw::program(seed)
    }

    /// How many fibers run it, without the helpers that some statements start.
    pub fn fibers(&self) -> usize {
        let mut count = 0;
        expect::each_body(&self.root, &mut |_| count += 1);
        count
    }

    /// How many operations may wait for a peer at once, at most: one of each fiber that makes such,
    /// and one of its helper.
    fn most_waiting(&self) -> u32 {
        let mut count = 0;
        expect::each_body(&self.root, &mut |body| {
            let waits = |stmt: &Stmt| match stmt {
                Stmt::Talk { .. } => 2,
                Stmt::Never { what: Never::Byte | Never::Readiness } => 1,
                _ => 0,
            };
            count += body.stmts.iter().map(waits).max().unwrap_or(0);
        });
        count
    }

    fn file_bytes(&self) -> usize {
        self.regions * REGION_BYTES
    }
}

fn file_name(file: usize) -> String {
    format!("shared-{file}")
}

impl Delay {
    fn pass(self) {
        match self {
            Delay::Yields(count) => (0..count).for_each(|_| crate::fiber::yield_now()),
            Delay::Sleep(duration) => crate::fiber::sleep(duration),
        }
    }
}

/// The name of a fiber's own file.
fn own_name(body: &Body) -> String {
    format!("own-{}-{}", body.file, body.region)
}

/// The bytes that a statement writes.
fn bytes_of(salt: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(salt);
    let words = std::iter::repeat_with(|| rng.next().to_le_bytes());
    words.flatten().take(len).collect()
}

/// What a fiber has seen so far, as one number.
fn fold(digest: u64, value: u64) -> u64 {
    Rng::new(digest.rotate_left(17) ^ value).next()
}

fn fold_bytes(digest: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let digest = words.iter().fold(digest, |digest, word| fold(digest, u64::from_le_bytes(*word)));
    rest.iter().fold(digest, |digest, &byte| fold(digest, byte.into()))
}
