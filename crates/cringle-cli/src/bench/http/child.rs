//! A server as this process sees it.

use super::args::{Ablation, Cell, HttpArgs, Variant};
use crate::bench::meter::Usage;
use crate::interrupt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(super) struct Process {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
    errors: File,
    pub(super) addr: SocketAddr,
}

impl Process {
    /// Starts it on these processors, and waits until it listens on a port of its own.
    pub(super) fn start(
        args: &HttpArgs,
        cell: &Cell,
        variant: Variant,
        cpus: &[usize],
    ) -> io::Result<Process> {
        let errors = tempfile::tempfile()?;
        let mut child = command(args, cell, variant, cpus)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone()?)
            .process_group(0)
            .spawn()?;
        interrupt::set_group(child.id());
        let (Some(asks), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are pipes")
        };
        // Nobody connects to the unspecified address, and it says that it is not known yet.
        let addr = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut process = Process { child, asks, answers: BufReader::new(answers), errors, addr };
        process.addr = process.line()?.parse().map_err(io::Error::other)?;
        Ok(process)
    }

    /// What it has used since it was started.
    pub(super) fn usage(&mut self) -> io::Result<Usage> {
        self.asks.write_all(b"?")?;
        let line = self.line()?;
        let mut words = line.split_whitespace();
        let mut next = || words.next().ok_or_else(|| io::Error::other("the server's line is cut"));
        Ok(Usage {
            seconds: 0.0,
            user_seconds: next()?.parse().map_err(io::Error::other)?,
            system_seconds: next()?.parse().map_err(io::Error::other)?,
            context_switches: next()?.parse().map_err(io::Error::other)?,
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// If it has ended: what it said.
    pub(super) fn complaint(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        interrupt::clear_child();
        let mut text = String::new();
        let _ = self.errors.rewind().and_then(|()| self.errors.read_to_string(&mut text));
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        Some(format!("{status}: {}", first.trim_start_matches("cringle: ")))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? > 0 {
            return Ok(line.trim_end().into());
        }
        // Its end of the pipe is closed: it has ended, or is about to.
        self.child.wait()?;
        interrupt::clear_child();
        Err(io::Error::other(self.complaint().unwrap_or_default()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        interrupt::clear_child();
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
    if let Some(ablation) = variant.ablated.map(Ablation::name) {
        command.args(["--ablate", ablation]);
    }
    if !cpus.is_empty() {
        let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
        command.args(["--cpus", &list.join(",")]);
    }
    Ok(command)
}
