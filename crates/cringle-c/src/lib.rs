//! Batches of reads and writes through io_uring, for programs in C and for bindings of other
//! languages: the library behind `cringle.h`.
//!
//! It is [`BlockIo`](cringle::block::BlockIo) with a C interface: engines are numbers, operations
//! are arrays of structures, and failures are `-errno`, with words that `cringle_last_error`
//! returns. The functions are documented in `cringle.h`, which is generated from this crate, in
//! `cringle(3)`, and in the book's chapter on C. Rust programs use `BlockIo` itself.
//!
//! No panic leaves the library. What it relies on is the contract of each function: the memory that
//! the caller lends, and the callback.

#![allow(non_camel_case_types)]
#![deny(missing_docs)]

pub mod abi;
mod cancellation;
mod engine;
mod error;
mod exports;
mod files;
mod handles;
mod large;
mod notify;
mod ops;
mod params;
mod queue;
mod queue_calls;
mod register;
mod registered;
mod registry;
mod sabotage;
mod signals;
mod submissions;
mod terms;
mod words;
mod words_of_op;

pub use abi::*;
pub use exports::*;
pub use queue_calls::*;
pub use register::*;
