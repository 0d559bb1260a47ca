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

use super::channel_macros::receives;
use super::endpoint::{ReceiveEnd, SendEnd, ends};

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

    receives!("oneshot::channel()");
}

opaque_debug!(Sender<T>, Receiver<T>);
