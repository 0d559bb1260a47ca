//! Whether somebody reads along.

use std::os::fd::{AsFd, AsRawFd};

/// `std::io::IsTerminal`, which std has sealed: for everything with a descriptor, std's types too.
///
/// ```
/// use cringle::io::{self, IsTerminal};
///
/// let (reader, _writer) = io::pipe()?;
/// assert!(!reader.is_terminal());
/// println!("{}", if io::stdout().is_terminal() { "in colour" } else { "plain" });
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait IsTerminal {
    /// Whether the descriptor is that of a terminal.
    fn is_terminal(&self) -> bool;
}

impl<T: AsFd + ?Sized> IsTerminal for T {
    fn is_terminal(&self) -> bool {
        crate::sys::is_terminal(self.as_fd().as_raw_fd())
    }
}
