//! Telling who waits for what, at a signal.
//!
//! A thread waits for the signal, and not a fiber: it is when fibers do not get their turn that somebody
//! wants to know why.

use super::Signal;
use super::handler::{Listener, Purpose};
use super::watcher::Watcher;
use crate::runtime::{Dump, dump_all};
use std::fmt::Write as _;
use std::io::{self, Write as _};

/// Has each of these signals write a [dump](crate::runtime::dump_all) of every runtime of the process to
/// standard error: who waits for what, and which worker is stuck. By custom it is [`Signal::User1`], which
/// ends a process that does not listen for it.
///
/// For as long as the guard lives; dropping it leaves nothing behind. It may be called outside of
/// [`run`](crate::run), too: at the beginning of `main`.
///
/// ```
/// use cringle::signal::{self, Signal};
///
/// let _guard = signal::dump_on(&[Signal::User1])?;
/// cringle::run(|| {
///     // … the program; `kill -USR1` asks what it is doing.
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// What the system says where a file descriptor or a thread is not to be had (it takes one of each).
pub fn dump_on(signals: &[Signal]) -> io::Result<DumpGuard> {
    let listener = Listener::new(signals, Purpose::Tell)?;
    let watcher = Watcher::start("cringle-dump", listener, |watch| {
        while let Ok(Some(number)) = watch.wait(Listener::take) {
            write(number, &dump_all());
        }
    })?;
    Ok(DumpGuard { _watcher: watcher })
}

/// What [`dump_on`] returns: while it lives, the signals dump.
#[derive(Debug)]
#[must_use = "the signals dump while this lives"]
pub struct DumpGuard {
    _watcher: Watcher,
}

/// In one piece, so that other threads' lines come before or after it. Standard error may be gone.
fn write(number: i32, dumps: &[Dump]) {
    let name = Signal::of_number(number).map_or("a signal", Signal::name);
    let mut text = format!("cringle: {name}: ");
    match dumps.len() {
        0 => text += "no runtime is there to tell of\n",
        1 => text += "who waits for what\n",
        count => _ = writeln!(text, "who waits for what in {count} runtimes"),
    }
    dumps.iter().for_each(|dump| _ = write!(text, "{dump}"));
    let _ = io::stderr().write_all(text.as_bytes());
}
