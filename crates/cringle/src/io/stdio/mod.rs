//! The standard streams: std's names, locks and buffers; only the calling fiber waits.
//!
//! They have buffers of their own: a program that uses these and std's on the same descriptor should
//! flush one before it writes to the other (std's `print!` is std's), and read by one of them only.

mod input;
mod output;
mod raw;

pub use input::{Stdin, StdinLock, stdin};
pub use output::{Stderr, StderrLock, Stdout, StdoutLock, stderr, stdout};
