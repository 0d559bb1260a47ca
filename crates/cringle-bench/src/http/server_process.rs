//! A server as this process sees it: a child.

use super::args::{Cell, Feature, HttpArgs, Variant};
use cringle_report::interrupt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// It is killed when it is dropped.
pub(super) trait ServerProcess {
    fn addr(&self) -> SocketAddr;

    /// Since it was started.
    fn used(&mut self) -> io::Result<ServerUse>;

    /// Its processes.
    fn ids(&self) -> Vec<u32>;

    /// If it has ended: what it said.
    fn complaint(&mut self) -> Option<String>;
}

/// What a server takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerUse {
    pub(super) cpu_seconds: f64,
    pub(super) context_switches: u64,
}

impl ServerUse {
    pub(super) fn since(self, before: ServerUse) -> ServerUse {
        ServerUse {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            context_switches: self.context_switches.saturating_sub(before.context_switches),
        }
    }
}

/// What it writes to standard error.
pub(super) struct Errors(File);

impl Errors {
    pub(super) fn new() -> io::Result<Errors> {
        tempfile::tempfile().map(Errors)
    }

    pub(super) fn writer(&self) -> io::Result<Stdio> {
        self.0.try_clone().map(Stdio::from)
    }

    pub(super) fn complaint(&mut self, status: ExitStatus) -> String {
        let mut text = Vec::new();
        let _ = self.0.rewind().and_then(|()| self.0.read_to_end(&mut text));
        let text = String::from_utf8_lossy(&text);
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        format!("{status}: {}", first.trim_start_matches("cringle: "))
    }
}

/// One of ours: this program.
pub(super) struct Process {
    child: std::process::Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
    errors: Errors,
    addr: SocketAddr,
}

impl Process {
    /// Starts it on these processors, and waits until it listens on a port of its own.
    pub(super) fn start(
        args: &HttpArgs,
        cell: &Cell,
        variant: Variant,
        cpus: &[usize],
    ) -> io::Result<Box<dyn ServerProcess>> {
        let errors = Errors::new()?;
        let mut child = command(args, cell, variant, cpus)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.writer()?)
            .process_group(0)
            .spawn()?;
        interrupt::kill_group_on_interrupt(child.id());
        let (Some(asks), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are pipes")
        };
        // Nobody connects to the unspecified address, and it says that it is not known yet.
        let addr = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut process = Process { child, asks, answers: BufReader::new(answers), errors, addr };
        process.addr = process.line()?.parse().map_err(io::Error::other)?;
        Ok(Box::new(process))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? > 0 {
            return Ok(line.trim_end().into());
        }
        // Its end of the pipe is closed: it has ended, or is about to.
        self.child.wait()?;
        interrupt::forget_child();
        Err(io::Error::other(self.complaint().unwrap_or_default()))
    }
}

impl ServerProcess for Process {
    fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn used(&mut self) -> io::Result<ServerUse> {
        self.asks.write_all(b"?")?;
        let line = self.line()?;
        let mut words = line.split_whitespace();
        let mut next = || words.next().ok_or_else(|| io::Error::other("the server's line is cut"));
        Ok(ServerUse {
            cpu_seconds: next()?.parse().map_err(io::Error::other)?,
            context_switches: next()?.parse().map_err(io::Error::other)?,
        })
    }

    fn ids(&self) -> Vec<u32> {
        vec![self.child.id()]
    }

    fn complaint(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        interrupt::forget_child();
        Some(self.errors.complaint(status))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        interrupt::forget_child();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(args: &HttpArgs, cell: &Cell, variant: Variant, cpus: &[usize]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "http", "--controlled", "--listen", "127.0.0.1:0"]);
    command.args(["--servers", variant.server.name()]);
    command.args(["--workers", &cell.workers.to_string()]);
    command.args(["--connections", &cell.connections.to_string()]);
    command.args(["--response-bytes", &args.response_bytes().to_string()]);
    command.arg(if cell.keepalive { "--keepalive" } else { "--no-keepalive" });
    if let Some(feature) = variant.changed.map(Feature::name) {
        command.args(["--ablate", feature]);
    }
    if !cpus.is_empty() {
        let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
        command.args(["--cpus", &list.join(",")]);
    }
    Ok(command)
}
