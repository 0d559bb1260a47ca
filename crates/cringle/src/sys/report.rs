//! Reports on standard error.

use super::syscall;
#[cfg(feature = "sim")]
use std::cell::Cell;
use std::path::{Path, PathBuf};

#[cfg(feature = "sim")]
thread_local! {
    static SIMULATION_SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Sets the seed that this thread's reports name, while the thread runs a simulation.
#[cfg(feature = "sim")]
pub(crate) fn set_simulation_seed(seed: Option<u64>) {
    SIMULATION_SEED.set(seed);
}

/// Replaces `%p` by the process number, in the name of a file that a variable of the environment
/// gives to every process.
pub(crate) fn with_process_number(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(text) => text.replace("%p", &std::process::id().to_string()).into(),
        None => path.into(),
    }
}

/// Writes one line to standard error and ignores errors. A report must not panic, as `eprintln!`
/// does if standard error is closed, least of all before an abort.
pub(crate) fn report(line: std::fmt::Arguments<'_>) {
    #[cfg(feature = "sim")]
    if let Some(seed) = SIMULATION_SEED.try_with(Cell::get).ok().flatten() {
        let text = format_args!("cringle: (simulation of seed {seed}) {line}\n");
        return write(&text.to_string());
    }
    write(&format!("cringle: {line}\n"));
}

/// Writes to standard error, without the lock of std's handle: a fiber may be suspended while it
/// holds that lock.
fn write(text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // SAFETY: the bytes are borrowed for the call, which reads them.
        let result = unsafe { syscall!(SYS_write, libc::STDERR_FILENO, rest.as_ptr(), rest.len()) };
        match result {
            1.. => rest = &rest[result as usize..],
            _ if result == -(libc::EINTR as isize) => {}
            _ => return,
        }
    }
}
