//! The driver: accepts an [`Op`] and a [`Completion`], and stores the op's result in the
//! completion.
//!
//! There are three drivers: [`uring`]; [`epoll`], where io_uring is not available; and `sim`, the
//! simulation (feature `sim`; without it, `no_sim.rs` stands in). [`Driver`] is whichever of them a
//! worker has. A driver knows nothing of fibers. Its caller lends it completions in a frame that
//! cannot go away, and gets an opaque [`Token`] back when the driver owes that frame nothing more.
//! Every driver keeps **I1** (a completion outlives its op's last cqe, also when the op is
//! cancelled), **I5** (every op is answered exactly once) and **I7** (in-flight ops ≤ the limit ≤
//! the completion queue).

pub(crate) mod blocking;
pub(crate) mod completion;
mod counters;
mod dispatch;
pub(crate) mod epoll;
mod features;
mod interface;
pub(crate) mod iopoll;
#[cfg_attr(not(feature = "interpose"), allow(dead_code, reason = "only interposed calls close so"))]
pub(crate) mod kept;
pub(crate) mod nonblocking;
pub(crate) mod op;
pub(crate) mod pool;
mod registered;
#[cfg(not(feature = "sim"))]
#[path = "no_sim.rs"]
pub(crate) mod sim;
#[cfg(feature = "sim")]
pub(crate) mod sim;
pub(crate) mod syscall;
pub(crate) mod uring;

pub(crate) use completion::{Completion, FIELDS, OpSlot, Token, Waiter, prefetch};
pub(crate) use counters::{BUCKETS, Counter, Counts};
pub(crate) use dispatch::Driver;
pub(crate) use epoll::Epoll;
pub use features::{Feature, Features};
pub(crate) use interface::{DriverId, Full, Wait, means_cancelled};
pub(crate) use op::{
    FileOp, Memory, OP_DONE_NAMES, OP_NAMES, OP_PHRASES, OP_PLACES, Op, OpDescription, OpName,
    PathOp, SocketMemory, SocketTransfer, Target, Transfer, Way,
};
pub(crate) use uring::{Uring, UringOptions};
