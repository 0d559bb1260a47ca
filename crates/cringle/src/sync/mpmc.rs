//! Channels with any number of senders and receivers; each value goes to one receiver.
//!
//! ```
//! use cringle::{fiber, sync::mpmc};
//!
//! cringle::run(|| {
//!     let (jobs, inbox) = mpmc::bounded(4);
//!     let worker = || {
//!         let inbox = inbox.clone();
//!         fiber::spawn(move || inbox.iter().count())
//!     };
//!     let workers = [worker(), worker()];
//!     (0..100).for_each(|n| jobs.send(n).unwrap());
//!     drop(jobs);
//!     let done = workers.map(|worker| worker.join().unwrap());
//!     assert_eq!(done[0] + done[1], 100);
//! });
//! ```

use super::endpoint::{ReceiveEnd, SendEnd, ends, opaque_debug, receive_iterators};
use super::unsent::Unsent;
use std::io;
use std::time::Duration;

pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

/// Creates a channel that buffers up to `capacity` values; further senders wait. With 0 each sender
/// waits until its value is received: a rendezvous.
///
/// ```
/// let (sender, receiver) = cringle::sync::mpmc::bounded(1);
/// sender.send(1).unwrap();
/// assert!(sender.try_send(2).is_err());
/// assert_eq!(receiver.clone().recv(), Ok(1));
/// ```
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = ends(capacity);
    (Sender { end: sender }, Receiver { end: receiver })
}

/// The sending side of a [`bounded`] channel. Clone it to send from several fibers or threads.
///
/// ```
/// let (sender, receiver) = cringle::sync::mpmc::bounded(2);
/// sender.clone().send(1).unwrap();
/// sender.send(2).unwrap();
/// assert_eq!(receiver.len(), 2);
/// ```
pub struct Sender<T> {
    end: SendEnd<T>,
}

/// The receiving side of a [`bounded`] channel. Clone it to receive in several fibers or threads.
///
/// ```
/// let (sender, receiver) = cringle::sync::mpmc::bounded(2);
/// sender.send(1).unwrap();
/// sender.send(2).unwrap();
/// assert_eq!(receiver.clone().recv(), Ok(1));
/// assert_eq!(receiver.recv(), Ok(2));
/// ```
pub struct Receiver<T> {
    end: ReceiveEnd<T>,
}

impl<T> Sender<T> {
    /// Sends a value, and waits for room if the buffer is full. Without a buffer it waits until a
    /// receiver takes the value.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::mpmc};
    ///
    /// let (sender, receiver) = mpmc::bounded(1);
    /// cringle::run(|| {
    ///     let producer = fiber::spawn(move || (0..3).try_for_each(|n| sender.send(n)));
    ///     assert_eq!(receiver.iter().collect::<Vec<_>>(), [0, 1, 2]);
    ///     producer.join().unwrap().unwrap();
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// If all receivers were dropped. The error contains the value.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds here, which drops the value. Use
    /// [`send_cancellable`](Self::send_cancellable) to keep it.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.end.send(value)
    }

    /// Like [`send`](Self::send), but returns the value and an error if the calling fiber is
    /// cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::mpmc};
    ///
    /// let (sender, receiver) = mpmc::bounded(0);
    /// cringle::run(|| {
    ///     fiber::scope(|s| {
    ///         s.cancel();
    ///         let unsent = sender.send_cancellable("kept").unwrap_err();
    ///         assert_eq!(unsent.into_inner(), "kept");
    ///     });
    /// });
    /// # drop(receiver);
    /// ```
    ///
    /// # Errors
    ///
    /// The value and a [`Cancelled`](crate::Cancelled), if the fiber is cancelled. The inner result
    /// is what `send` returns.
    pub fn send_cancellable(&self, value: T) -> Result<Result<(), SendError<T>>, Unsent<T>> {
        self.end.send_cancellable(value)
    }

    /// Sends a value if the buffer has room or a receiver waits.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// ```
    /// use cringle::sync::mpmc::{self, TrySendError};
    ///
    /// let (sender, receiver) = mpmc::bounded(1);
    /// assert_eq!(sender.try_send('a'), Ok(()));
    /// assert_eq!(sender.try_send('b'), Err(TrySendError::Full('b')));
    /// drop(receiver);
    /// assert_eq!(sender.try_send('c'), Err(TrySendError::Disconnected('c')));
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no room, or if all receivers were dropped. The error contains the value.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.end.try_send(value)
    }
}

impl<T> Receiver<T> {
    /// Receives a value, and waits for one if the channel is empty.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::mpmc};
    ///
    /// let (sender, receiver) = mpmc::bounded(1);
    /// cringle::run(|| {
    ///     fiber::spawn(move || sender.send(1).unwrap());
    ///     assert_eq!(receiver.recv(), Ok(1));
    ///     assert!(receiver.recv().is_err(), "the sender was dropped");
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// If the channel is empty and all senders were dropped.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds here, and the values stay in the channel. A value that was handed
    /// over before the cancel is returned.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.end.recv()
    }

    /// Like [`recv`](Self::recv), but returns an error if the calling fiber is cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{cancel, fiber, sync::mpmc};
    ///
    /// let (sender, receiver) = mpmc::bounded(1);
    /// cringle::run(|| {
    ///     fiber::scope(|s| {
    ///         s.cancel();
    ///         let error = receiver.recv_cancellable().unwrap_err();
    ///         assert!(cancel::reason(&error).is_some());
    ///     });
    ///     sender.send("still open").unwrap();
    /// });
    /// assert_eq!(receiver.recv_cancellable().unwrap(), Ok("still open"));
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled. The inner result is what `recv`
    /// returns.
    pub fn recv_cancellable(&self) -> io::Result<Result<T, RecvError>> {
        self.end.recv_cancellable()
    }

    /// Receives a value if the channel has one.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// ```
    /// use cringle::sync::mpmc::{self, TryRecvError};
    ///
    /// let (sender, receiver) = mpmc::bounded(1);
    /// assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    /// sender.send(1).unwrap();
    /// assert_eq!(receiver.try_recv(), Ok(1));
    /// drop(sender);
    /// assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    /// ```
    ///
    /// # Errors
    ///
    /// If the channel is empty. The error says whether a sender is left.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.end.try_recv()
    }

    /// Receives a value, and waits for one for at most `timeout`.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::sync::mpmc::{self, RecvTimeoutError};
    /// use std::time::Duration;
    ///
    /// let (_sender, receiver) = mpmc::bounded::<u8>(1);
    /// let received = cringle::run(|| receiver.recv_timeout(Duration::from_millis(1)));
    /// assert_eq!(received, Err(RecvTimeoutError::Timeout));
    /// ```
    ///
    /// # Errors
    ///
    /// If no value arrived in time, or if the channel is empty and all senders were dropped.
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
    /// use cringle::sync::mpmc::{self, RecvTimeoutError};
    /// use std::time::Duration;
    ///
    /// let (_sender, receiver) = mpmc::bounded::<u8>(1);
    /// let received = receiver.recv_timeout_cancellable(Duration::from_millis(1))?;
    /// assert_eq!(received, Err(RecvTimeoutError::Timeout));
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

    /// Returns an iterator that receives, and waits, until all senders were dropped.
    ///
    /// ```
    /// let (sender, receiver) = cringle::sync::mpmc::bounded(2);
    /// sender.send(1).unwrap();
    /// sender.send(2).unwrap();
    /// drop(sender);
    /// assert_eq!(receiver.iter().sum::<i32>(), 3);
    /// ```
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// Returns the number of values in the buffer.
    ///
    /// ```
    /// let (sender, receiver) = cringle::sync::mpmc::bounded(2);
    /// sender.send('a').unwrap();
    /// assert_eq!(receiver.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.end.len()
    }

    /// Returns whether the buffer has no value.
    ///
    /// ```
    /// let (_sender, receiver) = cringle::sync::mpmc::bounded::<u8>(2);
    /// assert!(receiver.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender { end: self.end.clone() }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        Receiver { end: self.end.clone() }
    }
}

opaque_debug!(Sender, Receiver);

/// Iterates over received values, and ends when all senders were dropped: see [`Receiver::iter`].
///
/// ```
/// let (sender, receiver) = cringle::sync::mpmc::bounded(2);
/// sender.send(1).unwrap();
/// drop(sender);
/// for value in &receiver {
///     assert_eq!(value, 1);
/// }
/// ```
#[derive(Debug)]
pub struct Iter<'a, T: 'a> {
    receiver: &'a Receiver<T>,
}

/// Iterates over received values like [`Iter`], and owns the receiver.
///
/// ```
/// let (sender, receiver) = cringle::sync::mpmc::bounded(2);
/// sender.send(1).unwrap();
/// drop(sender);
/// assert_eq!(receiver.into_iter().next(), Some(1));
/// ```
#[derive(Debug)]
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

receive_iterators!(receiver);
