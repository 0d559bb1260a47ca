//! One virtual machine, from its start to its end.

use super::image::Disks;
use super::partition;
use super::tools::command;
use crate::Result;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum Accel {
    /// The processor's own virtualization.
    Kvm,
    /// Every instruction is translated: works everywhere, some ten times slower.
    Tcg,
}

impl Accel {
    /// KVM where the processor can do it. That `/dev/kvm` is there is not enough: a virtual machine may
    /// have it, and then fail at the first instruction that has to be emulated.
    pub(super) fn best() -> Accel {
        let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let mut words = processor.split_whitespace();
        let can = words.any(|word| word == "vmx" || word == "svm");
        let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
        if can && device.is_ok() { Accel::Kvm } else { Accel::Tcg }
    }

    fn words(self) -> [&'static str; 4] {
        match self {
            Accel::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Accel::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }
}

/// Polled queues of its NVMe disk.
const POLL_QUEUES: u32 = 2;

pub(super) struct Machine<'d> {
    pub(super) vmlinuz: PathBuf,
    pub(super) disks: &'d Disks,
    /// Steps that have a result.
    pub(super) done: Vec<String>,
    /// Where the kernel's own messages go.
    pub(super) console: PathBuf,
    pub(super) accel: Accel,
    pub(super) memory_mib: u32,
    /// How long it may say nothing before it is ended.
    pub(super) silence: Duration,
}

/// How it ended, if that was not as it should.
pub(super) enum Ended {
    Well,
    Silent(Duration),
    /// What the kernel said last.
    Died(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Well => Ok(()),
            Ended::Silent(time) => write!(f, "; ENDED after {} s without a word", time.as_secs()),
            Ended::Died(words) => write!(f, "; THE KERNEL ENDED:\n{words}"),
        }
    }
}

impl Machine<'_> {
    fn command(&self) -> Command {
        // A timer that comes late, as it may from a busy emulator, is no reason not to boot. What the
        // kernel does not know, it puts into the environment of the init.
        let kernel = format!(
            "root=PARTUUID={} rw init=/init console=ttyS0 panic=-1 oops=panic loglevel=5 \
             no_timer_check nvme.poll_queues={POLL_QUEUES} DONE={}",
            partition::UUID,
            self.done.join(",")
        );
        let drive = |id: &str, path: &Path| {
            format!("file={},if=none,id={id},format=raw,cache=unsafe", path.display())
        };
        let mut command = command("qemu-system-x86_64");
        command.args(self.accel.words()).args(["-smp", "2", "-m", &self.memory_mib.to_string()]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        // What a machine writes is thrown away with it: each kernel finds the disk as it was made.
        command.arg("-snapshot");
        command.args(["-drive", &drive("root", &self.disks.root)]);
        command.args(["-device", "nvme,drive=root,serial=root"]);
        command.args(["-drive", &drive("plain", &self.disks.plain)]);
        // Its one queue is needed for interrupts.
        command.args(["-device", "nvme,drive=plain,serial=plain,max_ioqpairs=1"]);
        command.args(["-serial", &format!("file:{}", self.console.display()), "-serial", "stdio"]);
        command.arg("-kernel").arg(&self.vmlinuz).args(["-append", &kernel]);
        command
    }

    /// How QEMU is called.
    pub(super) fn command_words(&self) -> String {
        format!("{:?}", self.command())
    }

    /// Runs it and hands over each line that its init writes.
    pub(super) fn run(&self, mut hear: impl FnMut(&str) -> Result<()>) -> Result<Ended> {
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Running(command.spawn()?);
        let lines = read_lines(&mut child.0);
        let mut done = false;
        loop {
            match lines.recv_timeout(self.silence) {
                Ok(line) => {
                    done |= line == "@@ done";
                    hear(&line)?;
                }
                Err(RecvTimeoutError::Timeout) => return Ok(Ended::Silent(self.silence)),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        child.0.wait()?;
        Ok(if done { Ended::Well } else { Ended::Died(self.last_words()) })
    }

    fn last_words(&self) -> String {
        let said = std::fs::read(&self.console).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<_> = said.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

/// Ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself, which is no error here.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What it writes, line by line, until it ends.
fn read_lines(child: &mut Child) -> mpsc::Receiver<String> {
    let output = BufReader::new(child.stdout.take().expect("it was asked for"));
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in output.split(b'\n') {
            let Ok(line) = line else { return };
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if send.send(line).is_err() {
                return;
            }
        }
    });
    lines
}
