//! Random programs: what the library is tested with, in a simulation and against the ring.
//!
//! A [`Program`] is drawn from a seed: fibers that spawn, scope, sleep, park, write, read, sync,
//! talk and panic. What it computes does not depend on what ends when or what has to be tried again,
//! because each fiber writes to a part of the files that is its own: so there is one right outcome,
//! which [`Program::expected`] finds without the library, and a simulation with any faults, or the
//! ring, must come to the same. Fibers that are left behind, to be cancelled at the end, have parts
//! of their own too, about which nothing is said.
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

mod check;
mod draw;
mod env;
mod expect;
mod peers;
mod perform;
mod transfer;

#[cfg(test)]
pub(super) use check::check_sabotaged;
pub use check::{Checked, check};
pub use expect::Outcome;

use crate::driver::sim::Rng;
use std::sync::Arc;

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
    /// It is left behind and cancelled, or a child of one: nothing is said about its part.
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
    },
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

    fn file_bytes(&self) -> usize {
        self.regions * REGION_BYTES
    }
}

fn file_name(file: usize) -> String {
    format!("shared-{file}")
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
