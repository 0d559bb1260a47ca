//! Counts the system calls of processes, with perf's counter of the tracepoint
//! `raw_syscalls:sys_enter`.
//!
//! An active counter slows down every system call of the machine, so it is used in separate runs.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::FromRawFd;

const TRACING_DIRECTORY: &str = "/sys/kernel/tracing";

/// The first version of `struct perf_event_attr`, which every kernel accepts.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint: u64,
}

const TRACEPOINT: u32 = 2;
/// Includes threads that are started later.
const INHERIT: u64 = 1 << 1;

/// A counter for each thread of the processes.
pub(super) struct Counter(Vec<File>);

impl Counter {
    pub(super) fn of(pids: &[u32]) -> io::Result<Counter> {
        let config = tracepoint()?;
        let counter = |entry: io::Result<fs::DirEntry>| {
            let name = entry?.file_name();
            let thread = name.to_str().and_then(|name| name.parse().ok());
            open(thread.ok_or(io::ErrorKind::InvalidData)?, config)
        };
        let mut all = Vec::new();
        for pid in pids {
            let threads = fs::read_dir(format!("/proc/{pid}/task"))?;
            all.extend(threads.map(counter).collect::<io::Result<Vec<_>>>()?);
        }
        Ok(Counter(all))
    }

    pub(super) fn read(&mut self) -> io::Result<u64> {
        let mut sum = 0;
        for file in &mut self.0 {
            let mut count = [0; 8];
            file.read_exact(&mut count)?;
            sum += u64::from_ne_bytes(count);
        }
        Ok(sum)
    }
}

/// Returns the number of the tracepoint.
fn tracepoint() -> io::Result<u64> {
    let path = format!("{TRACING_DIRECTORY}/events/raw_syscalls/sys_enter/id");
    let text = fs::read_to_string(&path).map_err(|error| {
        let mount = format!("as root, run `mount -t tracefs tracefs {TRACING_DIRECTORY}`");
        io::Error::new(error.kind(), format!("{path}: {error}; {mount}"))
    })?;
    text.trim().parse().map_err(io::Error::other)
}

fn open(thread: libc::pid_t, config: u64) -> io::Result<File> {
    let size = size_of::<Attributes>() as u32;
    let attributes =
        Attributes { kind: TRACEPOINT, size, config, flags: INHERIT, ..Attributes::default() };
    let (any_cpu, no_group, close_on_exec): (i32, i32, u64) = (-1, -1, 1 << 3);
    // SAFETY: the call reads `attributes`, a whole `perf_event_attr` of the size in its field
    // `size`.
    let fd = unsafe {
        let attributes = &raw const attributes;
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes,
            thread,
            any_cpu,
            no_group,
            close_on_exec,
        )
    };
    match fd {
        // SAFETY: the call has just returned this descriptor, which no other value owns.
        0.. => Ok(unsafe { File::from_raw_fd(fd as i32) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_if_permitted() {
        let mut counter = match Counter::of(&[std::process::id()]) {
            Ok(counter) => counter,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let before = counter.read().unwrap();
        for _ in 0..1000 {
            // SAFETY: `getppid` takes no pointer.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        assert!(counter.read().unwrap() - before >= 1000);
    }
}
