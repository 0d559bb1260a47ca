//! Signals: the graceful end of a program, and waiting for a signal as for anything else.
//!
//! | to | see |
//! |---|---|
//! | end everything on Ctrl-C or `kill`, in order | [`cancel_on`] |
//! | be told who waits for what at `kill -USR1` | [`dump_on`] |
//! | do something at each signal (reload at SIGHUP) | [`Signals`] |
//! | wait for one once | [`wait`] |
//!
//! A signal is caught while somebody here listens for it. A handler of the program's that was there
//! before is called, too; the last to stop listening puts it, or the default action, back.

mod cancel_on;
mod dump_on;
mod handler;
mod watcher;

pub use cancel_on::{Guard, cancel_on};
pub use dump_on::{DumpGuard, dump_on};

use crate::io::{Interest, ready};
use crate::runtime::worker::fairness;
use handler::{Listener, Purpose};
use std::ffi::c_int;
use std::io;

/// The signals that a program is told things by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Signal {
    /// SIGHUP: the terminal is gone. To daemons: read your settings again.
    Hangup,
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGQUIT: Ctrl-\\.
    Quit,
    /// SIGUSR1: what the program makes of it.
    User1,
    /// SIGUSR2: what the program makes of it.
    User2,
    /// SIGALRM: a timer of `alarm(2)` or `setitimer(2)`.
    Alarm,
    /// SIGTERM: what `kill` sends, and an init system to end a service.
    Terminate,
    /// SIGCHLD: a child has ended or was stopped.
    Child,
    /// SIGCONT: the program goes on after it was stopped.
    Continue,
    /// SIGWINCH: the terminal has another size.
    WindowChange,
}

impl Signal {
    const ALL: [Signal; 10] = [
        Signal::Hangup,
        Signal::Interrupt,
        Signal::Quit,
        Signal::User1,
        Signal::User2,
        Signal::Alarm,
        Signal::Terminate,
        Signal::Child,
        Signal::Continue,
        Signal::WindowChange,
    ];

    /// Its number, as `signal(7)` has it. A shell reports 128 more for what died of it.
    pub fn number(self) -> i32 {
        match self {
            Signal::Hangup => libc::SIGHUP,
            Signal::Interrupt => libc::SIGINT,
            Signal::Quit => libc::SIGQUIT,
            Signal::User1 => libc::SIGUSR1,
            Signal::User2 => libc::SIGUSR2,
            Signal::Alarm => libc::SIGALRM,
            Signal::Terminate => libc::SIGTERM,
            Signal::Child => libc::SIGCHLD,
            Signal::Continue => libc::SIGCONT,
            Signal::WindowChange => libc::SIGWINCH,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Signal::Hangup => "SIGHUP",
            Signal::Interrupt => "SIGINT",
            Signal::Quit => "SIGQUIT",
            Signal::User1 => "SIGUSR1",
            Signal::User2 => "SIGUSR2",
            Signal::Alarm => "SIGALRM",
            Signal::Terminate => "SIGTERM",
            Signal::Child => "SIGCHLD",
            Signal::Continue => "SIGCONT",
            Signal::WindowChange => "SIGWINCH",
        }
    }

    fn of_number(number: c_int) -> Option<Signal> {
        Signal::ALL.into_iter().find(|signal| signal.number() == number)
    }
}

/// Listens for signals, from when it is made to when it is dropped.
///
/// Signals that come while nobody waits are kept, each kind once, as the kernel does. Several of these
/// are each told of every signal.
///
/// ```
/// use cringle::signal::{Signal, Signals};
///
/// cringle::run(|| {
///     let reload = Signals::new(&[Signal::Hangup])?;
/// #   // SAFETY: it is caught.
/// #   unsafe { libc::raise(libc::SIGHUP) };
///     // … in a fiber of its own, in a loop:
///     assert_eq!(reload.wait()?, Signal::Hangup);
///     Ok::<(), std::io::Error>(())
/// })
/// .unwrap();
/// ```
#[derive(Debug)]
pub struct Signals(Listener);

impl Signals {
    /// Begins to listen. Signals that the process ignored (under `nohup`: SIGHUP) are caught, too: they
    /// were asked for by name.
    ///
    /// # Errors
    ///
    /// No file descriptor is left (it takes one).
    pub fn new(signals: &[Signal]) -> io::Result<Signals> {
        Listener::new(signals, Purpose::Tell).map(Signals)
    }

    /// Waits for the next signal; only the calling fiber does, and outside of a fiber the thread. Of
    /// several that have come, the one with the lowest number is returned first.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// The fiber was cancelled first: see [`cancel::reason`](crate::cancel::reason).
    ///
    /// # Cancellation
    ///
    /// A signal that was not returned is kept for the next call.
    pub fn wait(&self) -> io::Result<Signal> {
        fairness::spend();
        loop {
            if let Some(number) = self.0.take() {
                return Ok(Signal::of_number(number).expect("only these are listened for"));
            }
            wait_for_bell(&self.0)?;
        }
    }
}

/// Waits until something may have come.
fn wait_for_bell(listener: &Listener) -> io::Result<()> {
    match ready(listener, Interest::READABLE) {
        Ok(_) => listener.silence(),
        // The handler ran on this very thread.
        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
        Err(e) => return Err(e),
    }
    Ok(())
}

/// Waits for a signal once. Between two calls nobody listens, and the signal does what it did before (by
/// default most end the process): to wait in a loop, keep [`Signals`].
/// May suspend the calling fiber.
///
/// ```
/// use cringle::signal::{self, Signal};
/// use cringle::{fiber, time};
/// use std::io;
/// use std::time::Duration;
///
/// cringle::run(|| {
///     // A program that ends by itself after a while, or earlier if it is told to.
///     let done = || time::sleep(Duration::from_millis(1)).map(|()| "done");
///     let told = || signal::wait(Signal::User1).map(|()| "told");
///     assert_eq!(fiber::race(done, told)?, "done");
///     Ok::<(), io::Error>(())
/// })
/// .unwrap();
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
