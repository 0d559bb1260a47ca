//! Input and output, with the names of `std::io`. Only the calling fiber waits.
//!
//! The module contains every item of `std::io`, so that `use cringle::io` ports a program. Traits,
//! buffers, errors and adapters *are* std's. Items that may wait are this library's:
//!
//! - [`stdin`], [`stdout`], [`stderr`] and their locks;
//! - [`pipe`], [`PipeReader`], [`PipeWriter`];
//! - [`copy`], which copies within the kernel between files of this library;
//! - [`IsTerminal`], for everything that has a descriptor.
//!
//! Beyond std: [`ready`] waits for descriptors for which the library has no type.
//!
//! Outside of a fiber, the functions are the plain blocking calls.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! use cringle::{fiber, io};
//! use cringle::io::{BufRead, BufReader, Write};
//!
//! cringle::run(|| {
//!     let (reader, mut writer) = io::pipe()?;
//!     fiber::scope(|s| {
//!         let line = s.spawn(|| BufReader::new(reader).lines().next());
//!         writeln!(writer, "a line")?; // The other fiber waits for it.
//!         assert_eq!(line.join().unwrap().transpose()?.as_deref(), Some("a line"));
//!         Ok(())
//!     })
//! })
//! # }
//! ```

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
