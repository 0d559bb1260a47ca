//! Dumping the runtimes at a signal.
//!
//! A thread waits for the signal, not a fiber: the dump is needed most when fibers do not run.

use super::Signal;
use super::handler::{Listener, Purpose};
use super::watcher::Watcher;
use crate::runtime::{Dump, dump_all};
use std::fmt::Write as _;
use std::io::{self, Write as _};

/// Makes each of these signals write a [dump](crate::runtime::dump_all) of every runtime of the
/// process to standard error: what each fiber waits for, and which worker is stuck. By convention
/// the signal is
/// [`Signal::User1`], whose default action ends the process.
///
/// This lasts while the guard lives. Dropping the guard restores the previous state. The call can
/// also be made outside of [`run`](crate::run), at the beginning of `main`.
///
/// ```
/// use cringle::signal::{self, Signal};
///
/// let _guard = signal::dump_on(&[Signal::User1])?;
/// cringle::run(|| {
///     // … the program; `kill -USR1` prints what it is doing.
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// The system's error if no file descriptor or no thread is available; the call needs one of each.
pub fn dump_on(signals: &[Signal]) -> io::Result<DumpGuard> {
    let listener = Listener::new(signals, Purpose::Notify)?;
    let watcher = Watcher::start("cringle-dump", listener, |watch| {
        while let Ok(Some(number)) = watch.wait(Listener::take) {
            write(number, &dump_all());
        }
    })?;
    Ok(DumpGuard { _watcher: watcher })
}

/// The guard of [`dump_on`]: while it lives, the signals dump.
///
/// ```
/// use cringle::signal::{self, DumpGuard, Signal};
///
/// struct Program {
///     _dumps: DumpGuard,
/// }
///
/// let program = Program { _dumps: signal::dump_on(&[Signal::User1])? };
/// # drop(program);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the signals dump while this lives"]
pub struct DumpGuard {
    _watcher: Watcher,
}

/// Writes the dumps in one call, so that no other thread's lines are in between. Ignores errors:
/// standard error may be closed.
fn write(number: i32, dumps: &[Dump]) {
    let name = Signal::of_number(number).map_or("a signal", Signal::name);
    let mut text = format!("cringle: {name}: ");
    match dumps.len() {
        0 => text += "no runtime is running\n",
        1 => text += "dump of the runtime\n",
        count => _ = writeln!(text, "dump of {count} runtimes"),
    }
    dumps.iter().for_each(|dump| _ = write!(text, "{dump}"));
    let _ = io::stderr().write_all(text.as_bytes());
}
