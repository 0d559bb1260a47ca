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
//!
//! ```
//! use cringle::{block::Batch, fs::File};
//!
//! let file = File::open("/proc/self/exe")?;
//! let (mut head, mut tail) = ([0; 64], [0; 64]);
//! cringle::run(|| {
//!     let mut batch = Batch::new();
//!     batch.read(&file, &mut head, 0);
//!     batch.read(&file, &mut tail, 4096);
//!     assert!(batch.submit().into_iter().all(|count| count.is_ok()));
//! });
//! assert!(head.starts_with(b"\x7fELF"));
//! # std::io::Result::Ok(())
//! ```

// The page above is that of `cringle::block`. This crate is a part of the crate `cringle`, is
// published for it alone, and has no stable API.
//
// - `batch`, `results`: a fiber's batch. `perform` hands plain operations to the driver and the
//   others to fibers; `notes` remembers the others, and `settle` completes them.
// - `owned`, `block_io`, `block_io_builder`, `admission`: batches for programs without fibers.
// - `raw`: operations on the memory of other languages.
// - `fixed`, `aligned`, `polling`: registered files and buffers, direct I/O, polled completions.
// - `log`: a log. `mapped`: mapped files.
//
// A batch returns only when no op refers to its memory (I1). Registered memory belongs to the
// driver (I4). Two functions alone read a mapped file (I16).

#![deny(missing_docs)]

#[macro_use]
extern crate cringle_sys;

mod admission;
mod aligned;
mod batch;
mod block_io;
mod block_io_builder;
mod fixed;
mod log;
mod mapped;
mod notes;
mod owned;
mod perform;
mod polling;
mod raw;
mod results;
mod settle;

pub use aligned::AlignedBuf;
pub use batch::{Batch, OpId};
pub use block_io::BlockIo;
pub use block_io_builder::BlockIoBuilder;
pub use fixed::{FixedBuf, FixedBufs, FixedFile};
pub use log::{Log, LogBuilder};
pub use mapped::{MappedFile, SigbusHandler, Unmapped};
pub use owned::{OwnedBatch, OwnedResults, SharedFile, Submission};
pub use polling::Polling;
pub use results::Results;
