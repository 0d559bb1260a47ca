//! Child processes: their CPU time, and what they print when they fail.

use crate::meter::Usage;
use cringle_report::interrupt;
use rustix::fs::syncfs;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A child's standard error, in a file: with a pipe, this process would have to read while the
/// clock runs.
pub(crate) struct Stderr(File);

impl Stderr {
    pub(crate) fn new() -> io::Result<Stderr> {
        tempfile::tempfile().map(Stderr)
    }

    /// Returns the end that the child writes to.
    pub(crate) fn writer(&self) -> io::Result<Stdio> {
        self.0.try_clone().map(Stdio::from)
    }

    /// Prints what a child has printed, once: other rounds print the same.
    pub(crate) fn show_once(&self) {
        static SHOWN: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let mut text = [0; 4096];
        // The child writes at the offset that both share.
        let bytes = self.0.read_at(&mut text, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..bytes]).into_owned();
        let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if !text.is_empty() && !shown.contains(&text) {
            eprint!("{text}");
            shown.push(text);
        }
    }

    /// Describes how the child ended: its status, and the first line that it printed.
    pub(crate) fn describe(&mut self, status: ExitStatus) -> String {
        const MOST_BYTES: u64 = 64 << 10;
        let mut text = Vec::new();
        let rewound = self.0.rewind();
        let _ = rewound.and_then(|()| (&self.0).take(MOST_BYTES).read_to_end(&mut text));
        let text = String::from_utf8_lossy(&text);
        // With `--verbose` these lines are first.
        let describes = |line: &str| line.starts_with("driver: ") || line.starts_with("fibers: ");
        let mut lines = text.lines().map(str::trim);
        match lines.find(|line| !line.is_empty() && !describes(line)) {
            Some(line) => format!("{status}: {}", line.trim_start_matches("cringle: ")),
            None => format!("{status}"),
        }
    }
}

/// Runs a command and measures it. With `sync`, the clock also covers a sync of that file system.
/// The CPU time covers the command and its children, with their kernel threads, and no sync. The
/// error describes how the command failed.
pub(crate) fn time(command: &mut Command, sync: Option<&File>) -> Result<Usage, String> {
    let cannot = |error: io::Error| format!("it cannot be run: {error}");
    let mut errors = Stderr::new().map_err(cannot)?;
    let stderr = errors.writer().map_err(cannot)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).process_group(0);
    let started = Instant::now();
    let child = command.spawn().map_err(cannot)?;
    interrupt::kill_group_on_interrupt(child.id());
    let (status, usage) = wait(&child).map_err(cannot)?;
    if let Some(directory) = sync.filter(|_| status.success()) {
        sync_filesystem(directory).map_err(|error| format!("cannot sync: {error}"))?;
    }
    let seconds = started.elapsed().as_secs_f64();
    if !status.success() {
        return Err(errors.describe(status));
    }
    Ok(Usage { seconds, ..Usage::from(usage) })
}

/// Waits for a child, and returns its status and resource usage.
///
/// This takes two steps, so that an interruption never signals a number that is no longer the
/// child's: the first call waits without reaping, the second one reaps, and the child is forgotten
/// in between.
pub(crate) fn wait(child: &Child) -> io::Result<(ExitStatus, libc::rusage)> {
    let pid = Pid::from_child(child);
    let flags = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    retry_on_intr(|| waitid(WaitId::Pid(pid), flags))?;
    interrupt::forget_child();
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // No signal interrupts the call: the child has ended.
    // SAFETY: the call writes to `status` and `usage`, both whole values of their types.
    if unsafe { libc::wait4(pid.as_raw_pid(), &raw mut status, 0, usage.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled `usage`; all zeroes is a valid one, too.
    Ok((ExitStatus::from_raw(status), unsafe { usage.assume_init() }))
}

/// Writes out the file system that holds the file.
pub(crate) fn sync_filesystem(file: &File) -> io::Result<()> {
    Ok(retry_on_intr(|| syncfs(file))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Usage, String> {
        time(Command::new("sh").args(["-c", script]), None)
    }

    #[test]
    fn the_cpu_of_grandchildren_counts() {
        let sample = shell("sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'; true");
        let sample = sample.unwrap();
        assert!(sample.cpu_seconds() > 0.0);
        assert!(sample.seconds > 0.0);
    }

    #[test]
    fn a_failure_quotes_the_command() {
        let error = shell("echo >&2; echo no such luck >&2; exit 3").unwrap_err();
        assert!(error.contains("3: no such luck"), "{error}");
        assert!(shell("kill -9 $$").unwrap_err().contains("signal"));
        let error = time(&mut Command::new("/no/such/program"), None).unwrap_err();
        assert!(error.contains("cannot be run"), "{error}");
    }
}
