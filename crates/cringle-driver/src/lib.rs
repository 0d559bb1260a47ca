//! The drivers of the crate `cringle`: a driver accepts an [`Op`] and a [`Completion`], and stores
//! the op's result in the completion.
//!
//! It is a part of the crate `cringle`, is published for it alone, and has no stable API.
//!
//! There are three drivers: [`uring`]; [`epoll`], where io_uring is not available; and a
//! simulation, which `cringle-sim` implements behind the traits of [`simulation`]. [`Driver`] is
//! whichever of them a worker has. A driver knows nothing of fibers. Its caller lends it
//! completions in a frame that cannot go away, and gets an opaque [`Token`] back when the driver
//! owes that frame nothing more. Every driver keeps **I1** (a completion outlives its op's last
//! cqe, also when the op is cancelled), **I5** (every op is answered exactly once) and **I7**
//! (in-flight ops ≤ the limit).
//!
//! | module | content |
//! |---|---|
//! | [`op`], [`mod@syscall`] | the ops, as data; `op/table.rs` lists what a new op needs |
//! | [`completion`], [`interface`] | what a driver shares with its caller |
//! | [`dispatch`] | [`Driver`] |
//! | [`uring`], [`epoll`] | the drivers, with the same files: `push`, `enter`, `reap`, `cancel` |
//! | [`simulation`] | what a simulation is to the library |
//! | [`blocking`], [`pool`] | ops as plain calls, on the caller's thread or on one of the pool |
//! | [`features`], [`ring_use`] | the features of io_uring that are needed or used; all ops and requests |
//! | [`registered`], [`iopoll`], [`kept`], [`nonblocking`] | registered files; polled, closed and non-blocking descriptors |
//! | [`trace`], [`counters`] | what a worker records, for its trace and in numbers |

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]

#[macro_use]
extern crate cringle_sys;

pub mod blocking;
pub mod completion;
mod counters;
mod dispatch;
pub mod epoll;
mod features;
mod interface;
pub mod iopoll;
pub mod kept;
pub mod nonblocking;
pub mod op;
pub mod pool;
pub mod registered;
pub mod ring_use;
pub mod simulation;
pub mod syscall;
pub mod trace;
pub mod uring;

pub use completion::{Completion, FIELDS, OpSlot, Token, Waiter, prefetch};
pub use counters::{BUCKETS, Counter, Counts};
pub use dispatch::Driver;
pub use epoll::Epoll;
pub use features::{Feature, Features};
pub use interface::{DriverId, Full, Wait, means_cancelled};
pub use op::{
    FileOp, Memory, OP_DONE_NAMES, OP_NAMES, OP_PHRASES, OP_PLACES, Op, OpDescription, OpName,
    PathOp, SocketMemory, SocketTransfer, Target, Transfer, Way,
};
pub use uring::{Uring, UringOptions};
