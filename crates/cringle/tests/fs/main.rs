//! Files: calls, names, batches, logs. One program, so that tests that wait do so side by side.
//!
//! No test here runs a child: see the program `children`.

mod batch;
mod block_io;
mod bounce;
mod bounce_refusals;
mod cursor;
mod direct;
mod files;
mod flagged;
mod foreign_crates;
mod fuse;
mod inline;
mod log;
mod lost_memory;
mod polled;
mod programs;
mod same_files;
mod std_functions;
mod try_submit;
