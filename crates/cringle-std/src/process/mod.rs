//! Child processes: `std::process`'s names and semantics. Only the calling fiber waits.
//!
//! - [`Command::spawn`] creates the child on the calling worker's thread, whose attributes the
//!   child inherits.
//! - [`Child::wait`] waits for the child's end through the ring, on a descriptor of the process
//!   (`pidfd`, Linux 5.3). A cancel ends the wait, and the child can be waited for again.
//! - The child's streams are pipes, as from [`io::pipe`](crate::io::pipe).
//!
//! Dropping a [`Child`] neither kills it nor waits for it, as in std: it continues to run, and
//! after its end the kernel keeps its status until this process ends.
//!
//! In a simulation there are no other programs: starting one fails with `Unsupported`.
//!
//! ```
//! use cringle::process::Command;
//!
//! let output = cringle::run(|| Command::new("echo").arg("rope").output())?;
//! assert_eq!(output.stdout, b"rope\n");
//! # std::io::Result::Ok(())
//! ```

pub(crate) mod busy;
mod child;
mod command;
pub(crate) mod unix;
pub(crate) mod wait;

pub use crate::io::child_pipe::{ChildStderr, ChildStdin, ChildStdout};
pub use child::Child;
pub use command::Command;
pub use std::process::{
    CommandArgs, CommandEnvs, ExitCode, ExitStatus, Output, Stdio, Termination, abort, id,
};

use cringle_core::worker::Worker;

/// Ends the process with this exit status, as [`std::process::exit`]. On a fiber, no fiber of its
/// worker runs any more.
///
/// The system destroys the thread-locals of the calling thread, to which suspended fibers of the
/// worker may hold references. So destructors of thread-locals, and functions registered with
/// `atexit`, block the thread where they wait. After *std's* `exit` on a fiber they must not wait:
/// see the book's chapter on hazards.
///
/// ```no_run
/// cringle::run(|| {
///     if std::env::args().count() > 1 {
///         eprintln!("this program takes no arguments");
///         cringle::process::exit(2);
///     }
/// });
/// ```
pub fn exit(code: i32) -> ! {
    Worker::leave_thread();
    std::process::exit(code)
}
