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

use super::channel::Channel;
use super::mpsc;
use super::unsent::Unsent;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

/// A channel that holds so many values; further senders wait. With 0 each waits until its value is
/// received: a rendezvous.
///
/// ```
/// let (sender, receiver) = cringle::sync::mpmc::bounded(1);
/// sender.send(1).unwrap();
/// assert!(sender.try_send(2).is_err());
/// assert_eq!(receiver.clone().recv(), Ok(1));
/// ```
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel::new(capacity));
    (Sender { channel: Arc::clone(&channel) }, Receiver { channel })
}

/// The sending side of [`bounded`].
pub struct Sender<T> {
    channel: Arc<Channel<T>>,
}

/// The receiving side of [`bounded`].
pub struct Receiver<T> {
    channel: Arc<Channel<T>>,
}

impl<T> Sender<T> {
    /// Sends a value, and waits for room; without a buffer, until it is received.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If all receivers are gone; the error holds the value.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds here, and the value is dropped as it does. Use
    /// [`send_cancellable`](Self::send_cancellable) to have it back.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        mpsc::send(&self.channel, value)
    }

    /// [`send`](Self::send), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// The value, and a [`Cancelled`](crate::Cancelled), if the fiber is cancelled. Inside is what
    /// `send` returns.
    pub fn send_cancellable(&self, value: T) -> Result<Result<(), SendError<T>>, Unsent<T>> {
        mpsc::send_cancellable(&self.channel, value)
    }

    /// Sends a value if there is room, or somebody waits for one.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// # Errors
    ///
    /// If there is none, or if all receivers are gone; the error holds the value.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        mpsc::try_send(&self.channel, value)
    }
}

impl<T> Receiver<T> {
    /// Waits for a value.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If there is none and all senders are gone.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds here; the values stay in the channel. One that was handed over
    /// before the cancel is returned.
    pub fn recv(&self) -> Result<T, RecvError> {
        mpsc::receive(&self.channel)
    }

    /// [`recv`](Self::recv), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled. Inside is what `recv` returns.
    pub fn recv_cancellable(&self) -> io::Result<Result<T, RecvError>> {
        mpsc::receive_cancellable(&self.channel)
    }

    /// Takes a value that is there.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// # Errors
    ///
    /// If there is none, and whether one can still come.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        mpsc::try_receive(&self.channel)
    }

    /// Waits for a value, for this long at most.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If none has come in that time, or all senders are gone.
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

    /// Receives until all senders are gone.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// The values that are in the channel and not received.
    pub fn len(&self) -> usize {
        self.channel.len()
    }

    /// Whether no value is in the channel.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.channel.add_sender();
        Sender { channel: Arc::clone(&self.channel) }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.channel.add_receiver();
        Receiver { channel: Arc::clone(&self.channel) }
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

/// What is received until all senders are gone: [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T: 'a> {
    receiver: &'a Receiver<T>,
}

/// What is received until all senders are gone, by a receiver of its own.
#[derive(Debug)]
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter { receiver: self }
    }
}
