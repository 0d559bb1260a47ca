//! `std::io`, of which only the calling fiber waits.
//!
//! Everything of std's module is here under its name: `use cringle::io` ports a program. The traits,
//! buffers, errors and adapters *are* std's; what may wait is the library's:
//!
//! - [`stdin`], [`stdout`], [`stderr`] and their locks;
//! - [`pipe`], [`PipeReader`], [`PipeWriter`];
//! - [`copy`], which stays within the kernel between files and pipes of the library;
//! - [`IsTerminal`], for all that has a descriptor.
//!
//! More than std: [`ready`], for descriptors that the library has no type for.
//!
//! Outside of a fiber all of it is the plain blocking call.

pub(crate) mod child_pipe;
mod copy;
mod pipe;
mod ready;
mod stdio;
mod terminal;

pub use copy::copy;
pub use pipe::{PipeReader, PipeWriter, pipe};
pub use ready::{Interest, ready};
pub use std::io::*;
pub use stdio::{Stderr, StderrLock, Stdin, StdinLock, Stdout, StdoutLock, stderr, stdin, stdout};
pub use terminal::IsTerminal;
