//! Batches: many reads and writes with one wait; and a [`Log`], whose appends share their syncs.
//!
//! - A fiber submits a [`Batch`] through the ring of its worker. [`submit`](Batch::submit) returns
//!   when every operation has ended, so that the borrows of its buffers and files end.
//! - Programs without fibers use a [`BlockIo`], which owns workers with rings. Any thread submits
//!   batches to it, and waits, or receives the results by a callback or a future.
//! - A [`MappedFile`] is read without a system call where its pages are in memory, by a batch or at
//!   an offset.
//!
//! A batch has any number of operations, including none. They run concurrently and in no particular
//! order. The results are in the order of the operations, each with its own error, and short counts
//! are returned as they are. Nothing is allocated for an operation.

mod aligned;
mod apart;
mod batch;
mod block_io;
mod fixed;
mod log;
mod mapped;
mod owned;
mod polling;
mod results;

pub use aligned::AlignedBuf;
pub use batch::{Batch, OpId};
pub use block_io::{BlockIo, BlockIoBuilder};
pub use fixed::{FixedBuf, FixedBufs, FixedFile};
pub use log::{Log, LogBuilder};
pub use mapped::{MappedFile, SigbusHandler, Unmapped};
pub use owned::{OwnedBatch, OwnedResults, Submission};
pub use polling::Polling;
pub use results::Results;
