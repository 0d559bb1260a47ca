//! One run of a command, from its start to its end, with the CPU it and its children took.

use cringle_report::interrupt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub seconds: f64,
    /// Of the command and its children, threads in the kernel included; not of a sync after it.
    pub user_seconds: f64,
    pub system_seconds: f64,
}

/// Runs the command. With `sync`, the clock also covers writing out that file system. An error
/// is what the command said of its failure.
pub(super) fn time(command: &mut Command, sync: Option<&File>) -> Result<Sample, String> {
    let cannot = |error: io::Error| format!("it cannot be run: {error}");
    // A file and no pipe: nobody has to read while the clock runs.
    let mut errors = tempfile::tempfile().map_err(cannot)?;
    let stderr = errors.try_clone().map_err(cannot)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).process_group(0);
    let started = Instant::now();
    let child = command.spawn().map_err(cannot)?;
    interrupt::kill_group_on_interrupt(child.id());
    let (status, usage) = wait(child.id() as libc::pid_t).map_err(cannot)?;
    if let Some(place) = sync.filter(|_| status.success()) {
        sync_filesystem(place).map_err(|error| format!("cannot sync: {error}"))?;
    }
    let seconds = started.elapsed().as_secs_f64();
    if !status.success() {
        return Err(why(status, &mut errors));
    }
    let of = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Sample { seconds, user_seconds: of(usage.ru_utime), system_seconds: of(usage.ru_stime) })
}

/// Waits in two steps: until the child has ended, and then for its figures. Between them an
/// interruption is told that the number is no longer ours.
pub(crate) fn wait(pid: libc::pid_t) -> io::Result<(ExitStatus, libc::rusage)> {
    let mut ended = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WEXITED | libc::WNOWAIT;
    // SAFETY: the pointer is to a whole `siginfo_t`, which the call only writes.
    retried(|| unsafe { libc::waitid(libc::P_PID, pid as u32, ended.as_mut_ptr(), flags) })?;
    interrupt::forget_child();
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both pointers are to whole values, which the call only writes; the child is ours
    // and nobody else waits for it.
    retried(|| unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) })?;
    // SAFETY: all zeroes is a valid `rusage`, and the call has filled it.
    Ok((ExitStatus::from_raw(status), unsafe { usage.assume_init() }))
}

fn retried(mut call: impl FnMut() -> libc::c_int) -> io::Result<()> {
    loop {
        if call() >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Writes out the file system that the file is on.
pub(super) fn sync_filesystem(file: &File) -> io::Result<()> {
    // SAFETY: the call touches no memory of this process.
    retried(|| unsafe { libc::syncfs(file.as_raw_fd()) })
}

/// The status, and the first line that was said of it.
pub(crate) fn why(status: ExitStatus, errors: &mut File) -> String {
    let mut text = Vec::new();
    let _ = errors.rewind().and_then(|()| errors.take(64 << 10).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    match text.lines().find(|line| !line.trim().is_empty()) {
        Some(line) => format!("{status}: {}", line.trim()),
        None => format!("{status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Sample, String> {
        time(Command::new("sh").args(["-c", script]), None)
    }

    #[test]
    fn the_cpu_of_grandchildren_counts() {
        let sample = shell("sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'; true");
        let sample = sample.unwrap();
        assert!(sample.user_seconds + sample.system_seconds > 0.0);
        assert!(sample.seconds > 0.0);
    }

    #[test]
    fn a_failure_says_what_the_command_said() {
        let why = shell("echo >&2; echo no such luck >&2; exit 3").unwrap_err();
        assert!(why.contains("3: no such luck"), "{why}");
        assert!(shell("kill -9 $$").unwrap_err().contains("signal"));
        let why = time(&mut Command::new("/no/such/program"), None).unwrap_err();
        assert!(why.contains("cannot be run"), "{why}");
    }
}
