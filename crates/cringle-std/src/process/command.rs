//! The configuration of a child process.

use super::busy::repeat_while_busy;
use super::child::Child;
use cringle_core::refuse_in_simulation;
use cringle_core::worker::Current;
use cringle_sys::plainly;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{CommandArgs, CommandEnvs, ExitStatus, Output, Stdio};

/// A program to start and its configuration: `std::process::Command`, which it wraps.
///
/// ```
/// use cringle::{fiber, process::Command};
///
/// cringle::run(|| -> std::io::Result<()> {
///     // A hundred children, ten at once. Each fiber waits for its own child.
///     let echo = |n: u32| Command::new("echo").arg(n.to_string()).output();
///     for (n, output) in fiber::par_map(0..100, 10, echo).into_iter().enumerate() {
///         assert_eq!(output?.stdout, format!("{n}\n").into_bytes());
///     }
///     Ok(())
/// })
/// # ?; std::io::Result::Ok(())
/// ```
pub struct Command {
    pub(super) std: std::process::Command,
    streams: Streams,
}

/// As std's: the program and its arguments, quoted as for a shell.
impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.std.fmt(f)
    }
}

/// The streams that the caller has configured. The defaults of the others depend on the call that
/// starts the child.
#[derive(Default)]
struct Streams {
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

impl Command {
    /// Creates a command for a program, given by its path or by a name that is looked up in `PATH`,
    /// without arguments and with this process's environment, directory and streams.
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        let std = std::process::Command::new(program);
        Command { std, streams: Streams::default() }
    }

    /// Adds an argument. No shell interprets it.
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.std.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<I, S>(&mut self, args: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.std.args(args);
        self
    }

    /// Sets a variable of the child's environment.
    pub fn env<K, V>(&mut self, key: K, val: V) -> &mut Command
    where
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.std.env(key, val);
        self
    }

    /// Sets variables of the child's environment.
    pub fn envs<I, K, V>(&mut self, vars: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.std.envs(vars);
        self
    }

    /// Removes a variable from the child's environment.
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.std.env_remove(key);
        self
    }

    /// Removes all variables from the child's environment, also the inherited ones.
    pub fn env_clear(&mut self) -> &mut Command {
        self.std.env_clear();
        self
    }

    /// Sets the child's working directory.
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.std.current_dir(dir);
        self
    }

    /// Sets the child's standard input. By default it is this process's, and for
    /// [`output`](Self::output) `/dev/null`.
    pub fn stdin<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.std.stdin(cfg);
        self.streams.stdin = true;
        self
    }

    /// Sets the child's standard output. By default it is this process's, and for
    /// [`output`](Self::output) a pipe.
    pub fn stdout<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.std.stdout(cfg);
        self.streams.stdout = true;
        self
    }

    /// Sets the child's standard error. The defaults are as for [`stdout`](Self::stdout).
    pub fn stderr<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.std.stderr(cfg);
        self.streams.stderr = true;
        self
    }

    /// Starts the program, after the worker's other fibers had a turn.
    /// May suspend the calling fiber.
    ///
    /// The calling thread creates the child, also on a fiber, because a child inherits much from
    /// the thread: confinement, capabilities, namespaces, priority, cores, the signal mask. A child
    /// that asks to die with its parent (`PR_SET_PDEATHSIG`) dies with that thread. The worker is
    /// blocked for that time, which is short. `unblock(|| command.spawn())` creates the child on
    /// another thread: see
    /// [`unblock`](crate::fiber::unblock).
    ///
    /// While the program is open for writing (`ETXTBSY`), it is started again up to 20 times, for
    /// 63 ms and the worker's other work: a child that was forked while a fiber wrote the program
    /// has it open for a moment after the fiber has closed it.
    ///
    /// # Errors
    ///
    /// As std's: `NotFound`, `PermissionDenied`; [`Cancelled`](cringle_core::cancelled::Cancelled),
    /// before the program is started; `Unsupported` in a simulation.
    ///
    /// # Cancellation
    ///
    /// Once begun, the call is not interrupted.
    pub fn spawn(&mut self) -> io::Result<Child> {
        let Some(current) = Current::get() else {
            return self.std.spawn().map(Child::new);
        };
        refuse_in_simulation(
            "a simulation cannot run other programs, whose time and faults it does not control: \
             start none in it, or run without the simulation",
        )?;
        // A loop that starts children must let the other fibers run.
        current.yield_now();
        current.admit()?;
        let start = || current.worker.shared().unpinned(|| plainly(|| self.std.spawn()));
        let is_busy = |e: &io::Error| e.kind() == io::ErrorKind::ExecutableFileBusy;
        repeat_while_busy(current, is_busy, start).map(Child::new)
    }

    /// Starts the program, waits for its end, and returns its status and its output. An output
    /// stream that the caller has configured is not collected.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn), and errors of reading and waiting.
    ///
    /// # Cancellation
    ///
    /// The child is killed and waited for, since no other code can wait for it.
    pub fn output(&mut self) -> io::Result<Output> {
        let mut child = self.spawn_captured()?;
        drop(child.stdin.take());
        child.wait_with_output()
    }

    fn spawn_captured(&mut self) -> io::Result<Child> {
        self.set_defaults(Stdio::null, Stdio::piped);
        let child = self.spawn();
        // Restore the defaults of `spawn`, which may be the next call.
        self.set_defaults(Stdio::inherit, Stdio::inherit);
        child
    }

    /// Sets the streams that the caller has not configured.
    fn set_defaults(&mut self, input: fn() -> Stdio, output: fn() -> Stdio) {
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

    /// Starts the program, waits for its end, and returns its status.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn), and errors of waiting.
    ///
    /// # Cancellation
    ///
    /// The child is killed and waited for, since no other code can wait for it.
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        let mut child = self.spawn()?;
        let status = child.wait();
        child.kill_on_error(status)
    }

    /// Returns the program.
    pub fn get_program(&self) -> &OsStr {
        self.std.get_program()
    }

    /// Returns the arguments.
    pub fn get_args(&self) -> CommandArgs<'_> {
        self.std.get_args()
    }

    /// Returns the variables that were set or removed (`None`).
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.std.get_envs()
    }

    /// Returns the child's working directory, if it was set.
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.std.get_current_dir()
    }
}
