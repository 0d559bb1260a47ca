//! Ending a runtime by a signal.
//!
//! A thread waits for the signal, and not a fiber: a fiber would wait for its turn behind one that
//! computes, and an op in the ring would keep a lone fiber from making plain calls.

use super::Signal;
use super::handler::{Listener, Purpose};
use super::watcher::Watcher;
use crate::runtime::worker::Worker;
use std::io;
use std::sync::Arc;

/// Has the first of these signals cancel every fiber of the runtime, the closure of
/// [`run`](crate::run) included: all end by `?`, or are unwound, and `run` returns when they have. What
/// is in [`protect`](crate::fiber::protect) is finished first. A second one kills: the default action is
/// put back and the signal raised again, so that whoever waits for the process sees what it died of.
///
/// For as long as the guard lives; dropping it leaves nothing behind.
///
/// A signal that the process was started to ignore stays ignored (SIGINT in a shell's background job).
/// Signals in a row that come before the first has had its effect count as one: `timeout(1)` sends two.
///
/// ```
/// use cringle::signal::{self, Signal};
/// use cringle::{cancel, time};
/// use std::io;
/// use std::time::Duration;
///
/// let result: io::Result<()> = cringle::run(|| {
///     let _guard = signal::cancel_on(&[Signal::Interrupt, Signal::Terminate])?;
/// #   // SAFETY: it is caught.
/// #   unsafe { libc::raise(libc::SIGTERM) };
///     // … the program; meanwhile somebody presses Ctrl-C.
///     time::sleep(Duration::from_secs(3600))
/// });
/// assert!(cancel::reason(&result.unwrap_err()).is_some());
/// ```
///
/// # Errors
///
/// `Unsupported` outside of [`run`](crate::run); what the system says where a file descriptor or a
/// thread is not to be had (it takes one of each).
pub fn cancel_on(signals: &[Signal]) -> io::Result<Guard> {
    let Some(worker) = Worker::here() else {
        let text = "`signal::cancel_on` is called inside of `cringle::run`: it cancels its fibers";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    };
    let shared = Arc::clone(worker.shared());
    let listener = Listener::new(signals, Purpose::Cancel)?;
    let watcher = Watcher::start("cringle-signal", listener, move |watch| {
        match watch.wait(Listener::first) {
            Ok(Some(_)) => shared.cancel_all(),
            Ok(None) => return,
            // The signal can still kill.
            Err(_) => {}
        }
        // From now on another one kills.
        watch.listener.set_done();
    })?;
    Ok(Guard { watcher })
}

/// What [`cancel_on`] returns: while it lives, the signals cancel.
#[derive(Debug)]
#[must_use = "the signals cancel while this lives"]
pub struct Guard {
    watcher: Watcher,
}

impl Guard {
    /// The signal that has cancelled the runtime, if one has: for the exit status, which by custom is
    /// 128 and the [number](Signal::number).
    pub fn received(&self) -> Option<Signal> {
        self.watcher.listener().first().and_then(Signal::of_number)
    }
}
