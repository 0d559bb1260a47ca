//! The bare ring: set-up with the best flags that this kernel takes.

use io_uring::{IoUring, Submitter, squeue};
use std::io;

type Configure = fn(&mut io_uring::Builder);

/// From the newest kernel's flags to none.
const CONFIGURATIONS: [Configure; 4] = [
    // Linux 6.6
    |b| {
        b.setup_single_issuer().setup_defer_taskrun().setup_submit_all().setup_no_sqarray();
    },
    // 6.1
    |b| {
        b.setup_single_issuer().setup_defer_taskrun().setup_submit_all();
    },
    // 5.19
    |b| {
        b.setup_coop_taskrun();
    },
    |_| {},
];

/// With completions that are polled for at the device.
const IOPOLL: [Configure; 2] = [
    |b| {
        b.setup_iopoll().setup_single_issuer().setup_submit_all().setup_no_sqarray();
    },
    |b| {
        b.setup_iopoll().setup_single_issuer().setup_submit_all();
    },
];

const IDLE_MS: u32 = 100;

/// The kernel runs completions on its thread: to defer them is refused.
const POLLED: [Configure; 2] = [
    |b| {
        b.setup_sqpoll(IDLE_MS).setup_single_issuer().setup_submit_all().setup_no_sqarray();
    },
    |b| {
        b.setup_sqpoll(IDLE_MS).setup_submit_all();
    },
];

/// A ring with room for `entries` submissions. It belongs to the calling thread.
pub(crate) fn build(entries: usize) -> io::Result<IoUring> {
    build_with(entries, 2 * entries)
}

/// With room for so many completions that nobody has taken yet.
pub(crate) fn build_with(entries: usize, completions: usize) -> io::Result<IoUring> {
    first_of(&CONFIGURATIONS, entries, completions)
}

/// For direct reads and writes alone, whose completions come when they are waited for.
pub(crate) fn build_iopoll(entries: usize) -> io::Result<IoUring> {
    first_of(&IOPOLL, entries, 2 * entries)
}

/// With a thread of the kernel that submits. It looks for [`IDLE_MS`] before it sleeps.
pub(crate) fn build_polled(entries: usize, completions: usize) -> io::Result<IoUring> {
    first_of(&POLLED, entries, completions)
}

fn first_of(all: &[Configure], entries: usize, completions: usize) -> io::Result<IoUring> {
    let entries = entries.next_power_of_two() as u32;
    let completions = (completions.next_power_of_two() as u32).max(2 * entries);
    let mut refused = None;
    for configure in all {
        let mut builder = IoUring::<squeue::Entry>::builder();
        configure(&mut builder);
        builder.setup_cqsize(completions);
        match builder.build(entries) {
            Ok(ring) => return Ok(ring),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = Some(error),
            Err(error) => return Err(explained(error)),
        }
    }
    Err(explained(refused.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))))
}

/// Says what can be done where there is no ring to be had.
fn explained(error: io::Error) -> io::Error {
    let remedy = match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no io_uring",
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here: by seccomp (a container's default profile), or by the \
             sysctl kernel.io_uring_disabled"
        }
        Some(libc::ENOMEM) => "the limit of locked memory is too low: raise `ulimit -l`",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("no io_uring: {error}; {remedy}"))
}

/// Submits what is queued and waits for a completion.
#[inline]
pub(crate) fn wait_for_one(submitter: &Submitter<'_>) -> io::Result<()> {
    loop {
        match submitter.submit_and_wait(1) {
            Ok(_) => return Ok(()),
            Err(error) => match error.raw_os_error() {
                // Some completions must be taken before more can be submitted.
                Some(libc::EBUSY | libc::EAGAIN) => return Ok(()),
                Some(libc::EINTR) => {}
                _ => return Err(error),
            },
        }
    }
}
