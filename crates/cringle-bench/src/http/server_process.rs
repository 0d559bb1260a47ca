//! A server as a child process.

use super::args::{HttpArgs, HttpCase, Variant};
use crate::cannot_start;
use crate::child::Stderr;
use crate::experiment::Named;
use crate::meter::{Usage, on_threads};
use cringle_report::interrupt;
use cringle_report::machine::cpus;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;

/// A running server. It is killed when it is dropped.
pub(super) trait ServerProcess {
    /// The address at which it listens.
    fn addr(&self) -> SocketAddr;

    /// Returns the CPU time and the context switches since its start.
    fn used(&mut self) -> io::Result<Usage>;

    /// Returns the numbers of its processes.
    fn ids(&self) -> Vec<u32>;

    /// Describes how it has ended, if it has.
    fn failure(&mut self) -> Option<String>;
}

/// One of the servers of this program, which [`super::listen`] runs and which answers to its
/// standard input.
pub(super) struct OwnServer {
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
    errors: Stderr,
    addr: SocketAddr,
}

impl OwnServer {
    /// Starts a server on these processors, and waits until it listens on a port of its own.
    pub(super) fn start(
        args: &HttpArgs,
        case: &HttpCase,
        variant: Variant,
        cpus: &[usize],
    ) -> io::Result<Box<dyn ServerProcess>> {
        let errors = Stderr::new()?;
        let mut command = command(args, case, variant)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.writer()?);
        let mut child =
            spawn(&mut command, cpus).map_err(|error| cannot_start("a process", &error, ""))?;
        let (Some(requests), Some(replies)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are pipes")
        };
        // A placeholder until the server has printed its address.
        let addr = SocketAddr::from(([0, 0, 0, 0], 0));
        let replies = BufReader::new(replies);
        let mut server = OwnServer { child, requests, replies, errors, addr };
        server.addr = server.read_line()?.parse().map_err(io::Error::other)?;
        // Such as that it has fewer rings than workers, and so uses none.
        server.errors.show_once();
        Ok(Box::new(server))
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.replies.read_line(&mut line)? > 0 {
            return Ok(line.trim_end().into());
        }
        // The server has closed its end of the pipe: it has ended, or is about to.
        self.child.wait()?;
        interrupt::forget_child();
        Err(io::Error::other(self.failure().unwrap_or_default()))
    }
}

impl ServerProcess for OwnServer {
    fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn used(&mut self) -> io::Result<Usage> {
        self.requests.write_all(b"?")?;
        let line = self.read_line()?;
        let mut numbers = line.split_whitespace();
        let mut next =
            || numbers.next().ok_or_else(|| io::Error::other("the server's reply is incomplete"));
        Ok(Usage {
            seconds: 0.0,
            user_seconds: next()?.parse().map_err(io::Error::other)?,
            system_seconds: next()?.parse().map_err(io::Error::other)?,
            context_switches: next()?.parse().map_err(io::Error::other)?,
        })
    }

    fn ids(&self) -> Vec<u32> {
        vec![self.child.id()]
    }

    fn failure(&mut self) -> Option<String> {
        // A server that has refused a connection may be about to end: then it closes its pipe
        // instead of a reply, and `read_line` waits for its end.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.requests.write_all(b"?").and_then(|()| self.requests.flush());
            let _ = self.read_line();
        }
        let status = self.child.try_wait().ok()??;
        interrupt::forget_child();
        Some(self.errors.describe(status))
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        interrupt::forget_child();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(args: &HttpArgs, case: &HttpCase, variant: Variant) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "http", "--controlled", "--listen", "127.0.0.1:0"]);
    command.args(["--servers", &variant.server.name()]);
    command.args(["--workers", &case.workers.to_string()]);
    command.args(["--connections", &case.connections.to_string()]);
    command.args(["--response-bytes", &args.response_bytes().to_string()]);
    command.arg(if case.keepalive { "--keepalive" } else { "--no-keepalive" });
    if crate::IS_VERBOSE.load(Ordering::Relaxed) {
        command.arg("--verbose");
    }
    if let Some(feature) = variant.changed {
        command.args(["--ablate", &feature.name()]);
    }
    Ok(command)
}

/// Starts a command on these processors, in a group of its own.
pub(super) fn spawn(command: &mut Command, cpus: &[usize]) -> io::Result<Child> {
    // A child inherits the mask of the thread that starts it.
    let spawn = || {
        if !cpus.is_empty() {
            cpus::pin_to(cpus)?;
        }
        command.process_group(0).spawn()
    };
    let child = on_threads("", [spawn])?.remove(0);
    interrupt::kill_group_on_interrupt(child.id());
    Ok(child)
}
