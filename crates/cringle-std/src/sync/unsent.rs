//! The error of a send whose fiber was cancelled.

use super::caller::WaitError;
use std::fmt;
use std::io;

/// The error of a `send_cancellable` call whose fiber is cancelled: the value, which was not sent,
/// and the reason. `?` in a function that returns [`io::Result`] keeps the reason and drops the
/// value.
///
/// ```
/// use cringle::{Cancelled, fiber, sync::mpsc};
///
/// let (sender, _receiver) = mpsc::sync_channel(0);
/// let send = move || sender.send_cancellable("kept").unwrap_err();
/// let handle = cringle::run(|| fiber::spawn(send));
/// let (value, reason) = handle.join().unwrap().into_parts();
/// assert_eq!(value, "kept");
/// assert!(reason.get_ref().unwrap().is::<Cancelled>());
/// ```
pub struct Unsent<T> {
    value: T,
    reason: io::Error,
}

impl<T> Unsent<T> {
    pub(super) fn new(value: T, error: WaitError) -> Unsent<T> {
        Unsent { value, reason: error.into_io_error() }
    }

    /// Returns the value.
    ///
    /// ```
    /// # use cringle::{fiber, sync::mpsc};
    /// # let (sender, _receiver) = mpsc::sync_channel(0);
    /// # let send = move || sender.send_cancellable(7).unwrap_err();
    /// # let unsent = cringle::run(|| fiber::spawn(send)).join().unwrap();
    /// assert_eq!(unsent.into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        self.value
    }

    /// Returns the value and the reason.
    ///
    /// ```
    /// # use cringle::{fiber, sync::mpsc};
    /// # let (sender, _receiver) = mpsc::sync_channel(0);
    /// # let send = move || sender.send_cancellable(7).unwrap_err();
    /// # let unsent = cringle::run(|| fiber::spawn(send)).join().unwrap();
    /// let (value, reason) = unsent.into_parts();
    /// println!("{value} was not sent: {reason}");
    /// ```
    pub fn into_parts(self) -> (T, io::Error) {
        (self.value, self.reason)
    }

    /// Returns the reason why the value was not sent.
    ///
    /// ```
    /// # use cringle::{cancel, fiber, sync::mpsc};
    /// # let (sender, _receiver) = mpsc::sync_channel(0);
    /// # let send = move || sender.send_cancellable(7).unwrap_err();
    /// # let unsent = cringle::run(|| fiber::spawn(send)).join().unwrap();
    /// assert!(cancel::reason(unsent.reason()).is_some());
    /// ```
    pub fn reason(&self) -> &io::Error {
        &self.reason
    }
}

impl<T> From<Unsent<T>> for io::Error {
    fn from(unsent: Unsent<T>) -> io::Error {
        unsent.reason
    }
}

brief_debug!(Unsent<T>, |it| reason: it.reason);

impl<T> fmt::Display for Unsent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the value was not sent: {}", self.reason)
    }
}

impl<T> std::error::Error for Unsent<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}
