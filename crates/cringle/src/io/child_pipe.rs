//! The pipes to and from a child process's standard streams, which [`process`](crate::process) exports.

use super::pipe::{end_of_pipe, reads, writes};
use crate::fs::File;

/// The pipe to a child's standard input, as `std::process::ChildStdin`. Dropping it tells the child that
/// nothing more comes.
pub struct ChildStdin(File);

/// The pipe from a child's standard output, as `std::process::ChildStdout`.
pub struct ChildStdout(File);

/// The pipe from a child's standard error, as `std::process::ChildStderr`.
pub struct ChildStderr(File);

end_of_pipe!(ChildStdin, std::process::ChildStdin);
writes!(ChildStdin);
end_of_pipe!(ChildStdout, std::process::ChildStdout);
reads!(ChildStdout);
end_of_pipe!(ChildStderr, std::process::ChildStderr);
reads!(ChildStderr);
