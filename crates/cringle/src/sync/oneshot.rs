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

use super::endpoint::{ReceiveEnd, SendEnd, ends, opaque_debug};
use std::io;
use std::time::Duration;

pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError};

/// Creates a channel for one value.
///
/// ```
/// let (sender, receiver) = cringle::sync::oneshot::channel::<u8>();
/// drop(sender);
/// assert!(receiver.recv().is_err());
/// ```
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = ends(1);
    (Sender { end: sender }, Receiver { end: receiver })
}

/// The sending side of a [`channel`].
///
/// ```
/// let (sender, receiver) = cringle::sync::oneshot::channel();
/// std::thread::spawn(move || sender.send("done").unwrap());
/// assert_eq!(cringle::run(|| receiver.recv()), Ok("done"));
/// ```
pub struct Sender<T> {
    end: SendEnd<T>,
}

/// The receiving side of a [`channel`].
///
/// ```
/// let (sender, receiver) = cringle::sync::oneshot::channel();
/// sender.send(1).unwrap();
/// assert_eq!(receiver.try_recv(), Ok(1));
/// ```
pub struct Receiver<T> {
    end: ReceiveEnd<T>,
}

impl<T> Sender<T> {
    /// Sends the value. Never waits for the receiver.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// let (sender, receiver) = cringle::sync::oneshot::channel();
    /// drop(receiver);
    /// assert_eq!(sender.send("unwanted").unwrap_err().0, "unwanted");
    /// ```
    ///
    /// # Errors
    ///
    /// If the receiver was dropped. The error contains the value.
    pub fn send(self, value: T) -> Result<(), SendError<T>> {
        self.end.send_unbounded(value)
    }

    /// Returns whether the receiver was dropped, so that a value would be of no use.
    ///
    /// ```
    /// let (sender, receiver) = cringle::sync::oneshot::channel::<u8>();
    /// assert!(!sender.is_closed());
    /// drop(receiver);
    /// assert!(sender.is_closed());
    /// ```
    pub fn is_closed(&self) -> bool {
        self.end.has_no_receiver()
    }
}

impl<T> Receiver<T> {
    /// Waits for the value.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::oneshot};
    ///
    /// cringle::run(|| {
    ///     let (sender, receiver) = oneshot::channel();
    ///     fiber::spawn(move || sender.send(1).unwrap());
    ///     assert_eq!(receiver.recv(), Ok(1));
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// If the sender was dropped without sending.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds here. A value that was handed over before the cancel is returned.
    pub fn recv(self) -> Result<T, RecvError> {
        self.end.recv()
    }

    /// Like [`recv`](Self::recv), but returns an error if the calling fiber is cancelled. The
    /// receiver can be used again.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::oneshot};
    ///
    /// cringle::run(|| {
    ///     let (sender, receiver) = oneshot::channel();
    ///     fiber::scope(|s| {
    ///         s.cancel();
    ///         assert!(receiver.recv_cancellable().is_err());
    ///     });
    ///     sender.send(1).unwrap();
    ///     assert_eq!(receiver.recv_cancellable().unwrap(), Ok(1));
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled. The inner result is what `recv`
    /// returns.
    pub fn recv_cancellable(&self) -> io::Result<Result<T, RecvError>> {
        self.end.recv_cancellable()
    }

    /// Returns the value if it was sent.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// ```
    /// use cringle::sync::oneshot::{self, TryRecvError};
    ///
    /// let (sender, receiver) = oneshot::channel();
    /// assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    /// sender.send(1).unwrap();
    /// assert_eq!(receiver.try_recv(), Ok(1));
    /// ```
    ///
    /// # Errors
    ///
    /// If no value was sent. The error says whether the sender is left.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.end.try_recv()
    }

    /// Waits for the value for at most `timeout`.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::sync::oneshot::{self, RecvTimeoutError};
    /// use std::time::Duration;
    ///
    /// let (_sender, receiver) = oneshot::channel::<u8>();
    /// let received = receiver.recv_timeout(Duration::from_millis(1));
    /// assert_eq!(received, Err(RecvTimeoutError::Timeout));
    /// ```
    ///
    /// # Errors
    ///
    /// If no value arrived in time, or if the sender was dropped without sending.
    ///
    /// # Cancellation
    ///
    /// As [`recv`](Self::recv).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.end.recv_timeout(timeout)
    }

    /// Like [`recv_timeout`](Self::recv_timeout), but returns an error if the calling fiber is
    /// cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::sync::oneshot::{self, RecvTimeoutError};
    /// use std::time::Duration;
    ///
    /// let (sender, receiver) = oneshot::channel::<u8>();
    /// drop(sender);
    /// let received = receiver.recv_timeout_cancellable(Duration::from_millis(1))?;
    /// assert_eq!(received, Err(RecvTimeoutError::Disconnected));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled. The inner result is what
    /// `recv_timeout` returns.
    pub fn recv_timeout_cancellable(
        &self,
        timeout: Duration,
    ) -> io::Result<Result<T, RecvTimeoutError>> {
        self.end.recv_timeout_cancellable(timeout)
    }
}

opaque_debug!(Sender, Receiver);
