//! Signals: the graceful end of a program, and waiting for a signal like for anything else.
//!
//! | to | see |
//! |---|---|
//! | end everything in order on Ctrl-C or `kill` | [`cancel_on`] |
//! | dump what each fiber waits for at `kill -USR1` | [`dump_on`] |
//! | react to each signal (reload at SIGHUP) | [`Signals`] |
//! | wait for a signal once | [`wait`] |
//!
//! A signal is caught while a listener of this module exists for it. A handler that the program
//! installed before is called, too. The last listener restores that handler, or the default action.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! use cringle::signal::{Signal, Signals};
//! use cringle::fiber;
//!
//! cringle::run(|| {
//!     let reload = Signals::new(&[Signal::Hangup])?;
//!     fiber::scope(|s| {
//!         s.spawn_daemon_local(|| {
//!             while reload.wait().is_ok() {
//!                 println!("reading the settings again");
//!             }
//!         });
//!         // … the program
//!     });
//!     Ok(())
//! })
//! # }
//! ```

pub use cringle_run::dump_on::{DumpGuard, dump_on};
pub use cringle_std::signal::{Guard, Signal, Signals, cancel_on, wait};
