//! The choice, by the program and the environment, whether a thread that code of a fiber starts is
//! a fiber or a thread of the system.

use super::word_choice;
use crate::sys;
use std::io;

const VARIABLE: &str = "CRINGLE_THREADS";

/// What libc's `pthread_create` starts on a fiber, and so `std::thread::spawn`: see
/// [`Builder::threads`](crate::Builder::threads).
///
/// ```
/// use cringle::runtime::{self, Threads};
///
/// let builder = cringle::Builder::new().threads(Threads::System);
/// assert_eq!(builder.run(runtime::threads)?, Some(Threads::System));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Threads {
    /// A thread of the system, beside the fibers.
    #[default]
    System,
    /// A fiber with thread-locals of its own. Only in a program that interposes libc's calls, which
    /// `cringle_interpose::install!` does.
    Fibers,
}

impl Threads {
    /// The choice of the environment variable `CRINGLE_THREADS`, if it is set. A program that does
    /// not interpose libc's calls has no choice.
    pub(super) fn of_environment() -> io::Result<Option<Threads>> {
        if !sys::is_interposed() {
            return Ok(None);
        }
        let values = [("system", Threads::System), ("fibers", Threads::Fibers)];
        word_choice::of_environment(VARIABLE, &values, "`system` or `fibers`")
    }

    /// Checks that threads can be fibers, if they are to be.
    pub(super) fn check(self) -> io::Result<()> {
        if self == Threads::System || sys::is_interposed() {
            return Ok(());
        }
        let text = "Threads::Fibers was chosen, but this program does not interpose libc's calls; \
                    call `cringle_interpose::install!` in main.rs, or choose Threads::System";
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }
}
