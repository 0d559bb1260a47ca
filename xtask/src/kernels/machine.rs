//! Runs one virtual machine, from its start to its end.

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

/// How QEMU runs the machine's processor: by KVM if the processor supports virtualization, else by
/// translating every instruction, which is much slower. An existing `/dev/kvm` is not enough:
/// inside a virtual machine it may exist, and then fail at the first instruction that KVM must
/// emulate.
fn accelerator() -> [&'static str; 4] {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut flags = processor.split_whitespace();
    let can_virtualize = flags.any(|flag| flag == "vmx" || flag == "svm");
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    if can_virtualize && device.is_ok() {
        ["-accel", "kvm", "-cpu", "host"]
    } else {
        ["-accel", "tcg,thread=multi", "-cpu", "max"]
    }
}

/// The number of poll queues of the NVMe disk.
const POLL_QUEUES: u32 = 2;

/// A virtual machine, and what it boots.
pub(super) struct Machine<'d> {
    pub(super) vmlinuz: PathBuf,
    pub(super) disks: &'d Disks,
    /// Steps to leave out, since they have a result.
    pub(super) done: Vec<String>,
    /// The file for the kernel's messages.
    pub(super) console: PathBuf,
    /// The time without output after which the machine is killed.
    pub(super) silence: Duration,
}

/// How the machine ended.
pub(super) enum Ended {
    Normally,
    /// Killed after this time without output.
    Silent(Duration),
    /// The kernel died, with these last messages.
    Died(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Normally => Ok(()),
            Ended::Silent(time) => write!(f, "; KILLED after {} s without output", time.as_secs()),
            Ended::Died(messages) => write!(f, "; THE KERNEL DIED:\n{messages}"),
        }
    }
}

impl Machine<'_> {
    fn command(&self) -> Command {
        // `no_timer_check`: a busy emulator may delay the timer, which must not stop the boot. The
        // kernel puts parameters that it does not know (`DONE`) into the environment of the init.
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
        command.args(accelerator()).args(["-smp", "2", "-m", "4096"]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        // The machine's writes are discarded, so that each kernel finds the disk as it was made.
        command.arg("-snapshot");
        command.args(["-drive", &drive("root", &self.disks.root)]);
        command.args(["-device", "nvme,drive=root,serial=root"]);
        command.args(["-drive", &drive("plain", &self.disks.plain)]);
        // The only queue of this device is used with interrupts, so that none is left to poll.
        command.args(["-device", "nvme,drive=plain,serial=plain,max_ioqpairs=1"]);
        command.args(["-serial", &format!("file:{}", self.console.display()), "-serial", "stdio"]);
        command.arg("-kernel").arg(&self.vmlinuz).args(["-append", &kernel]);
        command
    }

    /// Runs the machine, and calls `hear` with each line that its init writes.
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
        Ok(if done { Ended::Normally } else { Ended::Died(self.last_messages()) })
    }

    /// Returns the last lines of the kernel's messages.
    fn last_messages(&self) -> String {
        let console = std::fs::read(&self.console).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        let lines: Vec<_> = console.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

/// A child process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that the child has ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Reads the child's output in a thread, and sends it line by line.
fn read_lines(child: &mut Child) -> mpsc::Receiver<String> {
    let output = BufReader::new(child.stdout.take().expect("standard output is piped"));
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
