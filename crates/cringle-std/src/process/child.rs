//! A child process.

use super::wait::wait_for_end;
use crate::fiber::{self, protect};
use crate::io::child_pipe::{ChildStderr, ChildStdin, ChildStdout};
use cringle_core::unwinding;
use cringle_core::worker::{Current, fairness};
use cringle_sys::{self as sys, plainly};
use std::fmt;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Output};

/// A child process, as `std::process::Child`. Dropping it neither kills it nor waits for it.
///
/// ```
/// use cringle::process::{Command, Stdio};
/// use std::io::Write;
///
/// cringle::run(|| -> std::io::Result<()> {
///     let mut sort = Command::new("sort").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
///     sort.stdin.take().unwrap().write_all(b"strand\nrope\n")?;
///     assert_eq!(sort.wait_with_output()?.stdout, b"rope\nstrand\n");
///     Ok(())
/// })
/// # ?; std::io::Result::Ok(())
/// ```
pub struct Child {
    std: std::process::Child,
    /// It has been waited for, so its process id may belong to another process.
    is_reaped: bool,
    /// The pipe to its standard input, if [`Command::stdin`](super::Command::stdin) requested one.
    pub stdin: Option<ChildStdin>,
    /// The pipe from its standard output, if [`Command::stdout`](super::Command::stdout) requested
    /// one.
    pub stdout: Option<ChildStdout>,
    /// The pipe from its standard error, if [`Command::stderr`](super::Command::stderr) requested
    /// one.
    pub stderr: Option<ChildStderr>,
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("stdin", &self.stdin)
            .field("stdout", &self.stdout)
            .field("stderr", &self.stderr)
            .finish_non_exhaustive()
    }
}

impl Child {
    pub(super) fn new(mut std: std::process::Child) -> Child {
        let stdin = std.stdin.take().map(ChildStdin::from);
        let stdout = std.stdout.take().map(ChildStdout::from);
        let stderr = std.stderr.take().map(ChildStderr::from);
        Child { std, is_reaped: false, stdin, stdout, stderr }
    }

    /// Returns the process id, which is the child's own until it has been waited for.
    pub fn id(&self) -> u32 {
        self.std.id()
    }

    /// Kills the child with SIGKILL. It still has to be waited for. Does nothing if it has been
    /// waited for.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn kill(&mut self) -> io::Result<()> {
        plainly(|| self.std.kill())
    }

    pub(super) fn is_reaped(&self) -> bool {
        self.is_reaped
    }

    /// Waits for the child's end and returns its status. The pipe to its standard input is closed
    /// first, so that the child does not wait for more input. Later calls return the same status.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{process::Command, time};
    /// use std::time::Duration;
    ///
    /// cringle::run(|| -> std::io::Result<()> {
    ///     let mut child = Command::new("sleep").arg("3600").spawn()?;
    ///     // A deadline ends the wait; the child continues to run.
    ///     assert!(time::timeout(Duration::from_millis(1), || child.wait()).is_err());
    ///     assert!(child.try_wait()?.is_none());
    ///     child.kill()?;
    ///     assert!(!child.wait()?.success());
    ///     Ok(())
    /// })
    /// # ?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    ///
    /// # Cancellation
    ///
    /// A cancel ends the wait. The child continues to run, and can be waited for again.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        if let Some(current) = Current::get() {
            current.spend();
            // A child that has ended needs no descriptor.
            if let Some(status) = self.poll()? {
                return Ok(status);
            }
            wait_for_end(current, self.std.id())?;
        }
        let status = plainly(|| self.std.wait())?;
        self.is_reaped = true;
        Ok(status)
    }

    /// Returns the child's status if it has ended. Does not wait.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.poll();
        fairness::tried(matches!(status, Ok(Some(_))));
        status
    }

    fn poll(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = plainly(|| self.std.try_wait())?;
        self.is_reaped |= status.is_some();
        Ok(status)
    }

    /// Reads everything that the child writes to its two pipes, concurrently, and waits for its
    /// end. The pipe to its standard input is closed first.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// Errors of reading and of waiting; if there are two pipes, the error if no stack can be
    /// mapped for the fiber that reads the second one; and
    /// [`Cancelled`](cringle_core::cancelled::Cancelled). On an error the child is killed and
    /// waited for, since no other code can wait for it.
    ///
    /// # Cancellation
    ///
    /// As for any error.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        if Current::get().is_none() {
            return self.into_std().wait_with_output();
        }
        let read = match (self.stdout.take(), self.stderr.take()) {
            (None, None) => Ok((Vec::new(), Vec::new())),
            (Some(out), None) => read_all(out).map(|out| (out, Vec::new())),
            (None, Some(err)) => read_all(err).map(|err| (Vec::new(), err)),
            (Some(out), Some(err)) => read_both(out, err),
        };
        let finished = read.and_then(|(stdout, stderr)| {
            let status = self.wait()?;
            Ok(Output { status, stdout, stderr })
        });
        self.kill_on_error(finished)
    }

    /// Kills and reaps the child if `result` is an error. For calls that consume the child: no
    /// other code can wait for it, and it would become a zombie.
    pub(super) fn kill_on_error<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        // If the kernel keeps no status (SIGCHLD is ignored), the process id may belong to another
        // process by now.
        let is_ours = || !self.is_reaped && sys::has_ended(self.id()).is_ok();
        if result.is_err() && is_ours() && self.kill().is_ok() {
            // The caller gets the first error, not the child's status.
            let _ = protect(|| self.wait());
        }
        result
    }

    fn into_std(self) -> std::process::Child {
        let Child { mut std, stdout, stderr, .. } = self;
        std.stdout = stdout.map(Into::into);
        std.stderr = stderr.map(Into::into);
        std
    }
}

/// Reads both pipes concurrently: a child that has filled one pipe may block before it writes to
/// the other.
fn read_both(out: ChildStdout, err: ChildStderr) -> io::Result<(Vec<u8>, Vec<u8>)> {
    fiber::scope(|s| {
        let other = fiber::Builder::new().spawn_scoped_local(s, || read_all(err))?;
        let out = read_all(out);
        let err = other.join_cancellable()?.unwrap_or_else(|payload| unwinding::resume(payload));
        Ok((out?, err?))
    })
}

fn read_all(stream: impl Read + Into<OwnedFd>) -> io::Result<Vec<u8>> {
    let mut stream = stream;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(bytes)
}
