//! The driver: what takes an [`Op`] and gives back a [`Completion`].
//!
//! There are three: [`uring`]; [`epoll`], where there may be no ring; and the simulation `sim` (feature
//! `sim`). [`any`] is whichever a worker has. A driver knows no fiber. Whoever asks lends it a completion that lies in a frame which
//! cannot go away, and is told by an opaque [`Token`] when the last entry for that frame has come. It
//! keeps **I1** (a completion outlives its op's last cqe, also when it is cancelled), **I5**
//! (every sqe is answered exactly once) and **I7** (in-flight ops ≤ the limit ≤ the queue).

mod about;
mod any;
pub(crate) mod blocking;
pub(crate) mod completion;
mod counts;
pub(crate) mod epoll;
pub(crate) mod nonblocking;
pub(crate) mod op;
pub(crate) mod plain;
pub(crate) mod polled;
pub(crate) mod pool;
#[cfg(feature = "sim")]
pub(crate) mod sim;
mod slots;
pub(crate) mod uring;

pub(crate) use about::{About, OP_DONE_WORDS, OP_WORDS};
pub(crate) use any::Driver;
pub(crate) use completion::{Completion, OpSlot, Token, Waiter};
pub(crate) use counts::{BUCKETS, Counter, Counts};
pub(crate) use epoll::Epoll;
pub(crate) use op::{Op, Target};
pub(crate) use uring::{Uring, UringOptions, Wait, prefetch};

/// There is no room for another op: the limit is reached, or the kernel takes no more now.
#[derive(Debug)]
pub(crate) struct Full;
