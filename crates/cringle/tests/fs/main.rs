//! Files: calls, names, batches. One program, so that tests that wait do so side by side.

mod batch;
mod block_io;
mod bounce;
mod cursor;
mod direct;
mod files;
mod flagged;
mod foreign_crates;
mod inline;
mod lost_memory;
mod mapped;
mod polled;
mod programs;
mod same_files;
mod std_functions;
mod try_submit;
