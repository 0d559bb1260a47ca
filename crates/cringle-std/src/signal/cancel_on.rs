//! Ending a runtime by a signal.
//!
//! A thread waits for the signal, not a fiber: a fiber would wait behind one that computes, and an
//! op in the ring would keep a lone fiber from making plain calls.

use super::Signal;
use super::handler::{Listener, Purpose};
use super::watcher::Watcher;
use cringle_core::worker::Worker;
use std::io;
use std::sync::Arc;

/// Makes the first of these signals cancel every fiber of the runtime, including the closure of
/// `run`. The fibers end by `?` or by unwinding, then `run` returns. Code in
/// [`protect`](crate::fiber::protect) is completed first. A second signal kills the process: the
/// default action is restored and the signal raised again, so that the parent sees what it died of.
///
/// This lasts while the guard lives. Dropping the guard restores the previous state.
///
/// A signal that the process was started to ignore stays ignored (SIGINT in a shell's background
/// job). Signals that arrive before the first one has taken effect count as one: `timeout(1)` sends
/// two.
///
/// ```
/// use cringle::signal::{self, Signal};
/// use cringle::{cancel, time};
/// use std::io;
/// use std::time::Duration;
///
/// let result: io::Result<()> = cringle::run(|| {
///     let _guard = signal::cancel_on(&[Signal::Interrupt, Signal::Terminate])?;
/// #   // SAFETY: the call takes no pointer, and the signal is caught.
/// #   unsafe { libc::raise(libc::SIGTERM) };
///     // … the program, until the user presses Ctrl-C.
///     time::sleep(Duration::from_secs(3600))
/// });
/// assert!(cancel::reason(&result.unwrap_err()).is_some());
/// ```
///
/// # Errors
///
/// `Unsupported` outside of `run`. The system's error if no file descriptor or no thread is
/// available; the call needs one of each.
pub fn cancel_on(signals: &[Signal]) -> io::Result<Guard> {
    let Some(worker) = Worker::here() else {
        let text = "`signal::cancel_on` cancels a runtime: call it inside of `cringle::run`";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    };
    let shared = Arc::clone(worker.shared());
    let listener = Listener::new(signals, Purpose::Cancel)?;
    let watcher = Watcher::start("cringle-signal", listener, move |watch| {
        match watch.wait(Listener::first) {
            Ok(Some(_)) => shared.cancel_all(),
            Ok(None) => return,
            // The watcher cannot wait; let the next signal kill the process.
            Err(_) => {}
        }
        // From now on, another signal kills.
        watch.listener.set_done();
    })?;
    Ok(Guard { watcher })
}

/// The guard of [`cancel_on`]: while it lives, the signals cancel.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::signal::{self, Signal};
///
/// cringle::run(|| {
///     let guard = signal::cancel_on(&[Signal::Terminate])?;
///     assert_eq!(guard.received(), None);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the signals cancel while this lives"]
pub struct Guard {
    watcher: Watcher,
}

impl Guard {
    /// Returns the signal that has cancelled the runtime, if any. By convention the exit status is
    /// then 128 plus its [number](Signal::number).
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::signal::{self, Signal};
    ///
    /// cringle::run(|| {
    ///     let guard = signal::cancel_on(&[Signal::Interrupt])?;
    ///     // … the program
    ///     if let Some(signal) = guard.received() {
    ///         cringle::process::exit(128 + signal.number());
    ///     }
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn received(&self) -> Option<Signal> {
        self.watcher.listener().first().and_then(Signal::of_number)
    }
}
