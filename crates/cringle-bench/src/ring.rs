//! Sets up bare rings with the best flags that this kernel accepts.

use io_uring::{IoUring, Submitter, squeue};
use std::io;

type Configure = fn(&mut io_uring::Builder);

/// Sets of flags, from those of the newest kernel to none.
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

/// The same for rings that poll the device for completions.
const IOPOLL: [Configure; 2] = [
    |b| {
        b.setup_iopoll().setup_single_issuer().setup_submit_all().setup_no_sqarray();
    },
    |b| {
        b.setup_iopoll().setup_single_issuer().setup_submit_all();
    },
];

/// How long an idle kernel thread polls the submission queue before it sleeps.
const SQPOLL_IDLE_MS: u32 = 100;

/// The same for rings with a kernel thread that submits. `DEFER_TASKRUN` is missing because the
/// kernel refuses it together with `SQPOLL`.
const SQPOLL: [Configure; 2] = [
    |b| {
        b.setup_sqpoll(SQPOLL_IDLE_MS).setup_single_issuer().setup_submit_all().setup_no_sqarray();
    },
    |b| {
        b.setup_sqpoll(SQPOLL_IDLE_MS).setup_submit_all();
    },
];

/// Sets up a ring with room for `entries` submissions and twice as many completions. Only the
/// calling thread may use it.
pub(crate) fn build(entries: usize) -> io::Result<IoUring> {
    build_with(entries, 2 * entries)
}

/// Sets up a ring with room for this number of completions.
pub(crate) fn build_with(entries: usize, completions: usize) -> io::Result<IoUring> {
    first_of(&CONFIGURATIONS, entries, completions)
}

/// Sets up a ring for direct reads and writes, which polls the device for completions.
pub(crate) fn build_iopoll(entries: usize) -> io::Result<IoUring> {
    first_of(&IOPOLL, entries, 2 * entries)
}

/// Sets up a ring with a kernel thread that submits.
pub(crate) fn build_sqpoll(entries: usize, completions: usize) -> io::Result<IoUring> {
    first_of(&SQPOLL, entries, completions)
}

/// Sets up a ring with the first set of flags that the kernel does not refuse as invalid.
fn first_of(all: &[Configure], entries: usize, completions: usize) -> io::Result<IoUring> {
    let entries = entries.next_power_of_two() as u32;
    let completions = (completions.next_power_of_two() as u32).max(2 * entries);
    let mut refused = None;
    for configure in all {
        let mut builder = IoUring::<squeue::Entry>::builder();
        configure(&mut builder);
        builder.setup_cqsize(completions);
        match builder.build(entries) {
            Ok(ring) => {
                // A filter may allow a ring to be made and not to be entered.
                // SAFETY: the argument is of size 0, and nothing is submitted.
                let entered = unsafe { ring.submitter().enter::<()>(0, 0, 0, None) };
                return entered.map(|_| ring).map_err(explained);
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = Some(error),
            Err(error) => return Err(explained(error)),
        }
    }
    Err(explained(refused.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))))
}

/// Adds the remedy to an error that means that rings are unavailable.
fn explained(error: io::Error) -> io::Error {
    let remedy = match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no io_uring",
        Some(libc::EPERM | libc::EACCES) => {
            "seccomp (a container's default profile) or the sysctl kernel.io_uring_disabled \
            forbids it: allow io_uring_setup, io_uring_enter and io_uring_register; `cringle \
            doctor` names which of them is denied, and how to allow it"
        }
        Some(libc::ENOMEM) => "the limit of locked memory is too low: raise `ulimit -l`",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("no io_uring: {error}; {remedy}"))
}

/// Submits the queue and waits for a completion.
#[inline]
pub(crate) fn wait_for_one(submitter: &Submitter<'_>) -> io::Result<()> {
    loop {
        match submitter.submit_and_wait(1) {
            Ok(_) => return Ok(()),
            Err(error) => match error.raw_os_error() {
                // The kernel accepts no more submissions until the caller takes some completions.
                Some(libc::EBUSY | libc::EAGAIN) => return Ok(()),
                Some(libc::EINTR) => {}
                _ => return Err(error),
            },
        }
    }
}
