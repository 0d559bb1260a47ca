//! Signals: the end of all fibers at a signal, and waiting for a signal like for anything else.
//!
//! A signal is caught while a listener of this module exists for it. A handler that the program
//! installed before is called, too. The last listener restores that handler, or the default action.
//! `cringle::signal` has the documentation of the whole, with `dump_on` of `cringle-run`.

mod cancel_on;
pub(crate) mod handler;
pub(crate) mod watcher;

pub use cancel_on::{Guard, cancel_on};

use crate::io::{Interest, ready};
use cringle_core::worker::fairness;
use handler::{Listener, Purpose};
use std::ffi::c_int;
use std::io;

/// A row for each signal: its name here, and in `signal(7)`.
macro_rules! signals {
    ($($(#[$doc:meta])* $signal:ident = $name:ident;)*) => {
        /// A signal that a program can listen for.
        ///
        /// ```
        /// use cringle::signal::Signal;
        ///
        /// assert_eq!(Signal::Terminate.number(), 15);
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Signal {
            $($(#[$doc])* $signal,)*
        }

        pub(crate) const SIGNALS: &[(Signal, c_int, &str)] =
            &[$((Signal::$signal, libc::$name, stringify!($name))),*];
    };
}

signals! {
    /// SIGHUP: the terminal was closed. By convention a daemon reads its settings again.
    Hangup = SIGHUP;
    /// SIGINT: Ctrl-C.
    Interrupt = SIGINT;
    /// SIGQUIT: Ctrl-\\.
    Quit = SIGQUIT;
    /// SIGUSR1: free for the program's use.
    User1 = SIGUSR1;
    /// SIGUSR2: free for the program's use.
    User2 = SIGUSR2;
    /// SIGALRM: a timer of `alarm(2)` or `setitimer(2)`.
    Alarm = SIGALRM;
    /// SIGTERM: sent by `kill`, and by an init system to end a service.
    Terminate = SIGTERM;
    /// SIGCHLD: a child has ended or was stopped.
    Child = SIGCHLD;
    /// SIGCONT: the program continues after it was stopped.
    Continue = SIGCONT;
    /// SIGWINCH: the size of the terminal has changed.
    WindowChange = SIGWINCH;
}

impl Signal {
    /// Returns the number, as in `signal(7)`. A shell reports 128 plus this number for a process
    /// that died of the signal.
    ///
    /// ```
    /// use cringle::signal::Signal;
    ///
    /// assert_eq!(Signal::Interrupt.number(), 2);
    /// ```
    pub fn number(self) -> i32 {
        SIGNALS[self as usize].1
    }

    fn of_number(number: c_int) -> Option<Signal> {
        SIGNALS.iter().find(|row| row.1 == number).map(|row| row.0)
    }
}

/// Listens for signals, from its creation until it is dropped.
///
/// Signals that arrive while no caller waits are kept, each kind once, as the kernel does. If
/// several listeners exist, each one receives every signal.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::signal::{Signal, Signals};
///
/// cringle::run(|| {
///     let reload = Signals::new(&[Signal::Hangup])?;
/// #   // SAFETY: the call takes no pointer, and the signal is caught.
/// #   unsafe { libc::raise(libc::SIGHUP) };
///     // … in a fiber of its own, in a loop:
///     assert_eq!(reload.wait()?, Signal::Hangup);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct Signals(Listener);

impl Signals {
    /// Begins to listen. Signals that the process ignored are caught, too (under `nohup`: SIGHUP),
    /// since the caller names them.
    ///
    /// ```
    /// use cringle::signal::{Signal, Signals};
    ///
    /// let resized = Signals::new(&[Signal::WindowChange])?;
    /// # drop(resized);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// If no file descriptor is available; a listener needs one.
    pub fn new(signals: &[Signal]) -> io::Result<Signals> {
        Listener::new(signals, Purpose::Notify).map(Signals)
    }

    /// Waits for the next signal. Only the calling fiber waits, or outside of a fiber the thread.
    /// If several signals have arrived, the one with the lowest number is returned first.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::signal::{Signal, Signals};
    ///
    /// cringle::run(|| {
    ///     let signals = Signals::new(&[Signal::User1, Signal::User2])?;
    /// #   // SAFETY: the call takes no pointer, and the signal is caught.
    /// #   unsafe { libc::raise(libc::SIGUSR2) };
    ///     // … another process calls `kill -USR2`
    ///     assert_eq!(signals.wait()?, Signal::User2);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the fiber was cancelled first: see [`cancel::reason`](crate::cancel::reason).
    ///
    /// # Cancellation
    ///
    /// A signal that was not returned is kept for the next call.
    pub fn wait(&self) -> io::Result<Signal> {
        fairness::spend();
        loop {
            if let Some(number) = self.0.take() {
                return Ok(
                    Signal::of_number(number).expect("a listener receives only known signals")
                );
            }
            wait_for_bell(&self.0)?;
        }
    }
}

/// Waits until a signal may have arrived.
fn wait_for_bell(listener: &Listener) -> io::Result<()> {
    match ready(listener, Interest::READABLE) {
        Ok(_) => listener.silence(),
        // The handler ran on this thread and interrupted the call.
        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
        Err(e) => return Err(e),
    }
    Ok(())
}

/// Waits for a signal once. Between two calls no listener exists, and the signal has its previous
/// effect (by default most end the process). To wait in a loop, keep a [`Signals`].
/// May suspend the calling fiber.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::signal::{self, Signal};
/// use cringle::{fiber, time};
/// use std::time::Duration;
///
/// cringle::run(|| {
///     // A program that ends after a while, or earlier at a signal.
///     let done = || time::sleep(Duration::from_millis(1)).map(|()| "done");
///     let signalled = || signal::wait(Signal::User1).map(|()| "signalled");
///     assert_eq!(fiber::race(done, signalled)?, "done");
///     Ok(())
/// })
/// # }
/// ```
///
/// # Errors
///
/// As for [`Signals::new`] and [`Signals::wait`].
///
/// # Cancellation
///
/// As [`Signals::wait`].
pub fn wait(signal: Signal) -> io::Result<()> {
    Signals::new(&[signal])?.wait().map(drop)
}
