//! The standard streams, with std's names, locks and buffering. Only the calling fiber waits.
//!
//! Their buffers are separate from std's. A program that uses both on one descriptor flushes one
//! before it writes to the other (`print!` writes to std's), and reads through only one of them.

mod input;
mod output;
mod raw;

pub use input::{Stdin, StdinLock, stdin};
pub use output::{Stderr, StderrLock, Stdout, StdoutLock, stderr, stdout};
