//! A program that was started.

use super::wait::wait_for_end;
use crate::fiber::{self, protect};
use crate::io::child_pipe::{ChildStderr, ChildStdin, ChildStdout};
use crate::runtime::unwinding;
use crate::runtime::worker::{Worker, fairness};
use crate::sys;
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
/// # ?; Ok::<(), std::io::Error>(())
/// ```
pub struct Child {
    std: std::process::Child,
    /// It has been waited for: its number may be another process's by now.
    is_reaped: bool,
    /// The pipe to its standard input, if it was asked for.
    pub stdin: Option<ChildStdin>,
    /// The pipe from its standard output, if it was asked for.
    pub stdout: Option<ChildStdout>,
    /// The pipe from its standard error, if it was asked for.
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

    /// Its number, which is its own until it has been waited for.
    pub fn id(&self) -> u32 {
        self.std.id()
    }

    /// Kills it, by SIGKILL. It is still to be waited for. One that has been waited for is left alone.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn kill(&mut self) -> io::Result<()> {
        self.std.kill()
    }

    pub(super) fn is_reaped(&self) -> bool {
        self.is_reaped
    }

    /// Waits for its end: its status. The pipe to its standard input is closed first, so that it does
    /// not wait for more. Once it has ended, the same status is returned each time.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{process::Command, time};
    /// use std::time::Duration;
    ///
    /// cringle::run(|| -> std::io::Result<()> {
    ///     let mut child = Command::new("sleep").arg("3600").spawn()?;
    ///     // A limit on the wait leaves the child as it is.
    ///     assert!(time::timeout(Duration::from_millis(1), || child.wait()).is_err());
    ///     assert!(child.try_wait()?.is_none());
    ///     child.kill()?;
    ///     assert!(!child.wait()?.success());
    ///     Ok(())
    /// })
    /// # ?; Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    ///
    /// # Cancellation
    ///
    /// The wait is given up; the child goes on, and can be waited for again.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        if let Some((worker, fiber)) = Worker::current() {
            worker.spend(fiber);
            // One that has ended is not waited for, by whomever.
            if let Some(status) = self.look()? {
                return Ok(status);
            }
            wait_for_end(worker, fiber, self.std.id())?;
        }
        let status = self.std.wait()?;
        self.is_reaped = true;
        Ok(status)
    }

    /// Its status, if it has ended. Does not wait.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.look();
        fairness::tried(matches!(status, Ok(Some(_))));
        status
    }

    fn look(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.std.try_wait()?;
        self.is_reaped |= status.is_some();
        Ok(status)
    }

    /// Reads all that it writes to its pipes, both at once, and waits for its end. The pipe to its
    /// standard input is closed first.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// Those of reading and waiting; of two pipes, that no stack can be had for a fiber that reads the
    /// other; and [`Cancelled`](crate::Cancelled). The child, which nobody else could wait for, is killed
    /// and waited for then.
    ///
    /// # Cancellation
    ///
    /// As for any error.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        if Worker::current().is_none() {
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
        self.finished(finished)
    }

    /// For a child that nobody can wait for any more, and a wait that may have been given up: it is not
    /// left to become a zombie.
    pub(super) fn finished<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        // Where the kernel keeps no status (SIGCHLD is ignored), its number may be another's by now.
        let is_ours = || !self.is_reaped && sys::has_ended(self.id()).is_ok();
        if result.is_err() && is_ours() && self.kill().is_ok() {
            // What was refused is reported, not how the child came to its end.
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

/// Beside each other: a child that has filled one pipe writes nothing to the other until it is read.
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
