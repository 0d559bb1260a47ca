//! Other programs: `std::process`'s names and semantics; only the calling fiber waits.
//!
//! - [`Command::spawn`] is made by the calling worker's thread, whose attributes the child inherits;
//! - [`Child::wait`] waits for the child's end through the ring, by a descriptor of the process
//!   (`pidfd`, Linux 5.3); a cancel ends the wait, and the child can be waited for again;
//! - the child's streams are pipes, as those of [`io::pipe`](crate::io::pipe).
//!
//! A [`Child`] that is dropped is neither killed nor waited for, as std's: it goes on, and when it has
//! ended the kernel keeps its status for as long as this process lives.
//!
//! In a simulation there are no other programs: starting one is `Unsupported`.

mod child;
mod command;
pub(crate) mod unix;
mod wait;

pub use crate::io::child_pipe::{ChildStderr, ChildStdin, ChildStdout};
pub use child::Child;
pub use command::Command;
pub use std::process::{
    CommandArgs, CommandEnvs, ExitCode, ExitStatus, Output, Stdio, Termination, abort, id,
};

use crate::runtime::worker::Worker;

/// Ends the process with this status, as [`std::process::exit`]. On a fiber, no fiber of its worker runs any more.
///
/// The system destroys the thread-locals of the calling thread, which other fibers of the worker may be suspended
/// with references to. Destructors of thread-locals, and what is registered with `atexit`, therefore wait plainly.
/// After *std's* `exit` on a fiber they must not wait: see the book's chapter on hazards.
///
/// ```no_run
/// cringle::run(|| {
///     if std::env::args().count() > 1 {
///         eprintln!("no arguments are known");
///         cringle::process::exit(2);
///     }
/// });
/// ```
pub fn exit(code: i32) -> ! {
    Worker::leave_thread();
    std::process::exit(code)
}
