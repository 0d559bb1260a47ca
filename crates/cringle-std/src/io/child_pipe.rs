//! The pipes to and from a child process's standard streams, which [`process`](crate::process)
//! exports.

use super::pipe::{end_of_pipe, reads, writes};
use crate::fs::File;

/// The pipe to a child's standard input, as `std::process::ChildStdin`. Dropping it closes the
/// pipe, so that the child reads the end of its input.
///
/// ```
/// use cringle::process::{Command, Stdio};
/// use std::io::Write;
///
/// let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
/// child.stdin.take().expect("it is piped").write_all(b"ahoy")?;
/// assert_eq!(child.wait_with_output()?.stdout, b"ahoy");
/// # std::io::Result::Ok(())
/// ```
pub struct ChildStdin(File);

/// The pipe from a child's standard output, as `std::process::ChildStdout`.
///
/// ```
/// use cringle::process::{Command, Stdio};
///
/// let mut child = Command::new("echo").arg("ahoy").stdout(Stdio::piped()).spawn()?;
/// let stdout = child.stdout.take().expect("it is piped");
/// assert_eq!(std::io::read_to_string(stdout)?, "ahoy\n");
/// child.wait()?;
/// # std::io::Result::Ok(())
/// ```
pub struct ChildStdout(File);

/// The pipe from a child's standard error, as `std::process::ChildStderr`.
///
/// ```
/// use cringle::process::{Command, Stdio};
///
/// let mut command = Command::new("sh");
/// let mut child = command.args(["-c", "echo ahoy >&2"]).stderr(Stdio::piped()).spawn()?;
/// let stderr = child.stderr.take().expect("it is piped");
/// assert_eq!(std::io::read_to_string(stderr)?, "ahoy\n");
/// child.wait()?;
/// # std::io::Result::Ok(())
/// ```
pub struct ChildStderr(File);

end_of_pipe!(ChildStdin, std::process::ChildStdin);
writes!(ChildStdin);
end_of_pipe!(ChildStdout, std::process::ChildStdout);
reads!(ChildStdout);
end_of_pipe!(ChildStderr, std::process::ChildStderr);
reads!(ChildStderr);
