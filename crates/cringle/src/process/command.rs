//! What to start, and how.

use super::child::Child;
use crate::runtime::worker::Worker;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{CommandArgs, CommandEnvs, ExitStatus, Output, Stdio};

/// A program to be started, as `std::process::Command`, which it is inside.
///
/// ```
/// use cringle::{fiber, process::Command};
///
/// cringle::run(|| -> std::io::Result<()> {
///     // A hundred children at once: each fiber waits for its own.
///     let outputs = fiber::par_map(0..100, 10, |n: u32| Command::new("echo").arg(n.to_string()).output());
///     for (n, output) in outputs.into_iter().enumerate() {
///         assert_eq!(output?.stdout, format!("{n}\n").into_bytes());
///     }
///     Ok(())
/// })
/// # ?; Ok::<(), std::io::Error>(())
/// ```
pub struct Command {
    pub(super) std: std::process::Command,
    streams: Streams,
}

/// As std's: the program and its arguments as a shell would be given them.
impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.std.fmt(f)
    }
}

/// Which of the child's streams were said something of: the defaults differ from call to call.
#[derive(Default)]
struct Streams {
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

impl Command {
    /// A program by its path, or by its name, which is then looked for in `PATH`; no arguments; this
    /// process's environment, directory and streams.
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        let std = std::process::Command::new(program);
        Command { std, streams: Streams::default() }
    }

    /// One more argument. No shell takes it apart.
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.std.arg(arg);
        self
    }

    /// More arguments.
    pub fn args<I, S>(&mut self, args: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.std.args(args);
        self
    }

    /// Sets a variable of its environment.
    pub fn env<K, V>(&mut self, key: K, val: V) -> &mut Command
    where
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.std.env(key, val);
        self
    }

    /// Sets several.
    pub fn envs<I, K, V>(&mut self, vars: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.std.envs(vars);
        self
    }

    /// Takes a variable away.
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.std.env_remove(key);
        self
    }

    /// Takes all variables away, those set before and those of this process.
    pub fn env_clear(&mut self) -> &mut Command {
        self.std.env_clear();
        self
    }

    /// The directory to start it in.
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.std.current_dir(dir);
        self
    }

    /// Its standard input: this process's where nothing is said, but nothing in [`output`](Self::output).
    pub fn stdin<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.std.stdin(cfg);
        self.streams.stdin = true;
        self
    }

    /// Its standard output: this process's where nothing is said, but a pipe in
    /// [`output`](Self::output).
    pub fn stdout<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.std.stdout(cfg);
        self.streams.stdout = true;
        self
    }

    /// Its standard error: as [`stdout`](Self::stdout).
    pub fn stderr<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.std.stderr(cfg);
        self.streams.stderr = true;
        self
    }

    /// Starts it, after a turn of the worker's other fibers. May suspend the calling fiber.
    ///
    /// The calling thread makes the child, also on a fiber, because much of what a child inherits belongs to the
    /// thread: confinement, capabilities, namespaces, priority, cores, the signal mask; and a child that asks to
    /// die with its parent (`PR_SET_PDEATHSIG`) dies with that thread. Its worker waits for it, some 100 µs.
    /// [`unblock`](crate::fiber::unblock)`(|| command.spawn())` has another thread make it.
    ///
    /// # Errors
    ///
    /// As std's: `NotFound`, `PermissionDenied`; [`Cancelled`](crate::Cancelled), before it was started;
    /// `Unsupported` in a simulation.
    ///
    /// # Cancellation
    ///
    /// Once it has begun it is waited for.
    pub fn spawn(&mut self) -> io::Result<Child> {
        let Some((worker, fiber)) = Worker::current() else {
            return self.std.spawn().map(Child::new);
        };
        if worker.is_simulated() {
            return Err(unsupported());
        }
        // One child after the other would leave the other fibers no turn.
        worker.yield_now(fiber);
        if worker.refuses(fiber) {
            return Err(fiber.cancel_error());
        }
        worker.shared().unpinned(|| self.std.spawn()).map(Child::new)
    }

    /// Starts it, waits for its end, and collects what it writes to those of its output streams of which
    /// nothing was said.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn), and those of reading and waiting.
    ///
    /// # Cancellation
    ///
    /// The child, which nobody else could wait for, is killed and waited for.
    pub fn output(&mut self) -> io::Result<Output> {
        let mut child = self.spawn_captured()?;
        drop(child.stdin.take());
        child.wait_with_output()
    }

    fn spawn_captured(&mut self) -> io::Result<Child> {
        self.set_unsaid(Stdio::null, Stdio::piped);
        let child = self.spawn();
        // As if nothing had been said: the next call may be another one.
        self.set_unsaid(Stdio::inherit, Stdio::inherit);
        child
    }

    /// Sets the streams of which nothing was said.
    fn set_unsaid(&mut self, input: fn() -> Stdio, output: fn() -> Stdio) {
        if !self.streams.stdin {
            self.std.stdin(input());
        }
        if !self.streams.stdout {
            self.std.stdout(output());
        }
        if !self.streams.stderr {
            self.std.stderr(output());
        }
    }

    /// Starts it and waits for its end.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn), and those of waiting.
    ///
    /// # Cancellation
    ///
    /// The child, which nobody else could wait for, is killed and waited for.
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        let mut child = self.spawn()?;
        let status = child.wait();
        child.finished(status)
    }

    /// The program.
    pub fn get_program(&self) -> &OsStr {
        self.std.get_program()
    }

    /// The arguments.
    pub fn get_args(&self) -> CommandArgs<'_> {
        self.std.get_args()
    }

    /// The variables that were set, and those that were taken away (`None`).
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.std.get_envs()
    }

    /// The directory to start it in, where it is not this process's.
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.std.get_current_dir()
    }
}

fn unsupported() -> io::Error {
    let text = "a simulation has no other programs, whose time and faults it could not rule: start \
                none in it, or run without the simulation";
    io::Error::new(io::ErrorKind::Unsupported, text)
}
