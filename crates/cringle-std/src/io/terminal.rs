//! Whether a descriptor is a terminal.

use std::os::fd::{AsFd, AsRawFd};

/// Tests for a terminal, as `std::io::IsTerminal`, which is sealed. It is implemented for
/// everything that has a descriptor, including std's types.
///
/// ```
/// use cringle::io::{self, IsTerminal};
///
/// let (reader, _writer) = io::pipe()?;
/// assert!(!reader.is_terminal());
/// println!("{}", if io::stdout().is_terminal() { "in colour" } else { "plain" });
/// # std::io::Result::Ok(())
/// ```
pub trait IsTerminal {
    /// Returns whether the descriptor refers to a terminal.
    fn is_terminal(&self) -> bool;
}

impl<T: AsFd + ?Sized> IsTerminal for T {
    fn is_terminal(&self) -> bool {
        cringle_sys::is_terminal(self.as_fd().as_raw_fd())
    }
}
