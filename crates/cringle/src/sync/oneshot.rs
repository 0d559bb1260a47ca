//! Channels for one value.
//!
//! ```
//! use cringle::{fiber, sync::oneshot};
//!
//! cringle::run(|| {
//!     let (answer, question) = oneshot::channel();
//!     fiber::spawn(move || answer.send(42).unwrap());
//!     assert_eq!(question.recv(), Ok(42));
//! });
//! ```

use super::caller::Caller;
use super::channel::Channel;
use super::mpsc;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError};

/// A channel for one value.
///
/// ```
/// let (sender, receiver) = cringle::sync::oneshot::channel::<u8>();
/// drop(sender);
/// assert!(receiver.recv().is_err());
/// ```
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel::new(1));
    (Sender { channel: Arc::clone(&channel) }, Receiver { channel })
}

/// The sending side of [`channel`].
pub struct Sender<T> {
    channel: Arc<Channel<T>>,
}

/// The receiving side of [`channel`].
pub struct Receiver<T> {
    channel: Arc<Channel<T>>,
}

impl<T> Sender<T> {
    /// Sends the value. Never waits for the receiver.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If the receiver is gone; the error holds the value.
    pub fn send(self, value: T) -> Result<(), SendError<T>> {
        Caller::current().spend();
        self.channel.try_send(value).map_err(|(value, _)| SendError(value))
    }

    /// Whether the receiver is gone, and the value would be for nobody.
    pub fn is_closed(&self) -> bool {
        self.channel.is_abandoned()
    }
}

impl<T> Receiver<T> {
    /// Waits for the value.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If the sender is gone and has sent none.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds here. A value that was handed over before the cancel is returned.
    pub fn recv(self) -> Result<T, RecvError> {
        mpsc::receive(&self.channel)
    }

    /// [`recv`](Self::recv), for a fiber that wants to be told that it is cancelled; it can ask
    /// again.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled. Inside is what `recv` returns.
    pub fn recv_cancellable(&self) -> io::Result<Result<T, RecvError>> {
        mpsc::receive_cancellable(&self.channel)
    }

    /// Takes the value if it is there.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// # Errors
    ///
    /// If it is not, and whether it can still come.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        mpsc::try_receive(&self.channel)
    }

    /// Waits for the value, for this long at most.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If it has not come in that time, or the sender is gone and has sent none.
    ///
    /// # Cancellation
    ///
    /// As [`recv`](Self::recv).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        mpsc::receive_timeout(&self.channel, timeout)
    }

    /// [`recv_timeout`](Self::recv_timeout), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled. Inside is what `recv_timeout`
    /// returns.
    pub fn recv_timeout_cancellable(
        &self,
        timeout: Duration,
    ) -> io::Result<Result<T, RecvTimeoutError>> {
        mpsc::receive_timeout_cancellable(&self.channel, timeout)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.channel.remove_sender();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.channel.remove_receiver();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
