//! Reports on standard error.

use super::{NOW, poll_once, syscall};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// The seed that this thread's reports name, while the thread runs a simulation.
    pub(super) static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Replaces `%p` by the process number, in the name of a file that a variable of the environment
/// gives to every process.
pub fn with_process_number(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(text) => text.replace("%p", &std::process::id().to_string()).into(),
        None => path.into(),
    }
}

/// Writes one line to standard error and ignores errors. A report must not panic, as `eprintln!`
/// does if standard error is closed, least of all before an abort.
pub fn report(line: std::fmt::Arguments<'_>) {
    if let Some(seed) = SEED.try_with(Cell::get).ok().flatten() {
        let text = format!("cringle: (simulation of seed {seed}) {line}\n");
        return write_to_stderr(text.as_bytes());
    }
    write_to_stderr(format!("cringle: {line}\n").as_bytes());
}

/// Writes to standard error, without the lock of std's handle: a fiber may be suspended while it
/// holds that lock. Allocates nothing and takes no lock, so that a signal handler may call this.
///
/// The rest is dropped if standard error is a pipe that stays full for [`PATIENCE`]: its reader may
/// wait for the caller. (Another writer can fill the pipe after it was found ready; then the call
/// waits for the reader.)
pub fn write_to_stderr(text: &[u8]) {
    /// The last call has dropped bytes. The next one does not wait: reports would add up their
    /// times.
    static IS_STUCK: AtomicBool = AtomicBool::new(false);
    let most = most_at_once();
    let mut rest = text;
    while !rest.is_empty() {
        let patience = if IS_STUCK.load(Ordering::Relaxed) { &NOW } else { &PATIENCE };
        let is_ready = wait_for_stderr(patience);
        IS_STUCK.store(!is_ready, Ordering::Relaxed);
        if !is_ready {
            return;
        }
        let count = rest.len().min(most);
        // SAFETY: the bytes are borrowed for the call, which reads them.
        let result = unsafe { syscall!(SYS_write, libc::STDERR_FILENO, rest.as_ptr(), count) };
        match result {
            1.. => rest = &rest[result as usize..],
            _ if result == -(libc::EINTR as isize) => {}
            _ => return,
        }
    }
}

/// The time for which a text waits for a reader of standard error.
const PATIENCE: libc::timespec = libc::timespec { tv_sec: 1, tv_nsec: 0 };

/// Returns whether a write may succeed or fail at once.
fn wait_for_stderr(patience: &libc::timespec) -> bool {
    let (fd, events) = (libc::STDERR_FILENO, libc::POLLOUT);
    let mut poll = libc::pollfd { fd, events, revents: 0 };
    // A profiler's timer interrupts the wait again and again.
    let mut waits = (0..100).map(|_| poll_once(&mut poll, Some(patience)));
    let end = waits.find(|&result| result != -(libc::EINTR as isize));
    end.is_some_and(|ready| ready != 0)
}

/// The bytes that standard error takes without a wait when it is ready: of a pipe, this many. A
/// file takes a text in one piece, and so without lines of other threads in between.
fn most_at_once() -> usize {
    // SAFETY: all-zero is a valid value, and the structure is borrowed for the call.
    let is_file = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let result = syscall!(SYS_fstat, libc::STDERR_FILENO, &raw mut stat);
        result == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG
    };
    if is_file { usize::MAX } else { libc::PIPE_BUF }
}
