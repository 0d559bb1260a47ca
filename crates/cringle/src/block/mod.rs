//! Batches: many reads and writes, one wait.
//!
//! A [`Batch`] is a fiber's: it goes through the ring of the fiber's worker, and
//! [`submit`](Batch::submit) returns when every operation has ended, so that what it borrows is
//! free again. A [`BlockIo`] is for programs that are not fibers: it owns workers with rings, and
//! any thread submits batches to it, waits, or is told by a callback or a future.
//!
//! What holds for both: any number of operations, none included; they run concurrently and in no
//! order; results are in the order of the operations, each with its own error and with short
//! counts as they are; nothing is allocated for each operation.

mod aligned;
mod batch;
mod block_io;
mod fixed;
mod owned;
mod polling;
mod results;

pub use aligned::AlignedBuf;
pub use batch::{Batch, OpId};
pub use block_io::{BlockIo, BlockIoBuilder};
pub use fixed::{FixedBuf, FixedBufs, FixedFile};
pub use owned::{OwnedBatch, OwnedResults, Submission};
pub use polling::Polling;
pub use results::Results;
