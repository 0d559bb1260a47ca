//! Channels with one receiver: `std::sync::mpsc`, for fibers of any workers and for OS threads.
//!
//! A fiber may send to a thread and a thread to a fiber; only the calling fiber waits. The errors
//! are std's own. Values arrive in the order in which they were sent; a sender that waits for room
//! is served in its turn.
//!
//! ```
//! use cringle::{fiber, sync::mpsc};
//!
//! cringle::run(|| {
//!     let (sender, receiver) = mpsc::channel();
//!     for n in 0..3 {
//!         let sender = sender.clone();
//!         fiber::spawn(move || sender.send(n).unwrap());
//!     }
//!     drop(sender);
//!     assert_eq!(receiver.iter().sum::<i32>(), 3);
//! });
//! ```

use super::caller::{Caller, WaitError, WaitOptions, deadline};
use super::channel::{Channel, ReceiveFailure, SendFailure};
use super::unsent::Unsent;
use crate::runtime::fiber::Wait;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

/// A channel without a limit: its senders never wait.
///
/// ```
/// let (sender, receiver) = cringle::sync::mpsc::channel();
/// sender.send("there").unwrap();
/// assert_eq!(receiver.recv(), Ok("there"));
/// ```
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel::new(usize::MAX));
    (Sender { channel: Arc::clone(&channel) }, Receiver { channel, alone: PhantomData })
}

/// A channel that holds so many values; further senders wait. With 0 each waits until its value is
/// received: a rendezvous.
///
/// ```
/// use cringle::{fiber, sync::mpsc};
///
/// let (sender, receiver) = mpsc::sync_channel(0);
/// cringle::run(|| {
///     fiber::spawn(move || sender.send(1).unwrap());
///     assert_eq!(receiver.recv(), Ok(1));
/// });
/// ```
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let channel = Arc::new(Channel::new(bound));
    (SyncSender { channel: Arc::clone(&channel) }, Receiver { channel, alone: PhantomData })
}

/// The sending side of [`channel`].
pub struct Sender<T> {
    channel: Arc<Channel<T>>,
}

/// The sending side of [`sync_channel`].
pub struct SyncSender<T> {
    channel: Arc<Channel<T>>,
}

/// The receiving side: there is one, and it is not `Sync`.
///
/// ```compile_fail
/// let (_sender, receiver) = cringle::sync::mpsc::channel::<u8>();
/// std::thread::scope(|s| { s.spawn(|| receiver.recv()); });
/// ```
pub struct Receiver<T> {
    channel: Arc<Channel<T>>,
    alone: PhantomData<Cell<()>>,
}

impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}
impl<T> UnwindSafe for SyncSender<T> {}
impl<T> RefUnwindSafe for SyncSender<T> {}
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> Sender<T> {
    /// Sends a value. Never waits for room.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If the receiver is gone; the error holds the value.
    #[inline]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        Caller::current().spend();
        self.channel.try_send(value).map_err(|(value, _)| SendError(value))
    }
}

impl<T> SyncSender<T> {
    /// Sends a value, and waits for room; without a buffer, until it is received.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If the receiver is gone; the error holds the value.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds here, and the value is dropped as it does. Use
    /// [`send_cancellable`](Self::send_cancellable) to have it back.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        send(&self.channel, value)
    }

    /// [`send`](Self::send), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// The value, and a [`Cancelled`](crate::Cancelled), if the fiber is cancelled. Inside is what
    /// `send` returns.
    pub fn send_cancellable(&self, value: T) -> Result<Result<(), SendError<T>>, Unsent<T>> {
        send_cancellable(&self.channel, value)
    }

    /// Sends a value if there is room, or somebody waits for one.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// # Errors
    ///
    /// If there is none, or if the receiver is gone; the error holds the value.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        try_send(&self.channel, value)
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
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        receive(&self.channel)
    }

    /// [`recv`](Self::recv), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled. Inside is what `recv` returns.
    pub fn recv_cancellable(&self) -> io::Result<Result<T, RecvError>> {
        receive_cancellable(&self.channel)
    }

    /// Takes a value that is there.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// # Errors
    ///
    /// If there is none, and whether one can still come.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        try_receive(&self.channel)
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
        receive_timeout(&self.channel, timeout)
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
        receive_timeout_cancellable(&self.channel, timeout)
    }

    /// Receives until all senders are gone.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { rx: self }
    }

    /// Receives what is there, and does not wait for more.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { rx: self }
    }
}

// What the senders and receivers of all channels do.

pub(super) fn send<T>(channel: &Channel<T>, value: T) -> Result<(), SendError<T>> {
    match channel.send(value, WaitOptions::unwinding(Wait::Channel)) {
        Ok(()) => Ok(()),
        Err((value, why)) => {
            if let SendFailure::Wait(error) = why {
                error.unwind();
            }
            Err(SendError(value))
        }
    }
}

pub(super) fn send_cancellable<T>(
    channel: &Channel<T>,
    value: T,
) -> Result<Result<(), SendError<T>>, Unsent<T>> {
    match channel.send(value, WaitOptions::fallible(Wait::Channel)) {
        Ok(()) => Ok(Ok(())),
        Err((value, SendFailure::Wait(error))) => Err(Unsent::new(value, error)),
        Err((value, _)) => Ok(Err(SendError(value))),
    }
}

pub(super) fn try_send<T>(channel: &Channel<T>, value: T) -> Result<(), TrySendError<T>> {
    let sent = channel.try_send(value);
    Caller::current().tried(sent.is_ok());
    sent.map_err(|(value, why)| match why {
        SendFailure::Disconnected => TrySendError::Disconnected(value),
        SendFailure::Full | SendFailure::Wait(_) => TrySendError::Full(value),
    })
}

#[inline]
pub(super) fn receive<T>(channel: &Channel<T>) -> Result<T, RecvError> {
    channel.receive(WaitOptions::unwinding(Wait::Channel)).map_err(|missing| {
        if let ReceiveFailure::Wait(error) = missing {
            error.unwind();
        }
        RecvError
    })
}

pub(super) fn receive_cancellable<T>(channel: &Channel<T>) -> io::Result<Result<T, RecvError>> {
    match channel.receive(WaitOptions::fallible(Wait::Channel)) {
        Ok(value) => Ok(Ok(value)),
        Err(ReceiveFailure::Wait(error)) => Err(error.into_io_error()),
        Err(_) => Ok(Err(RecvError)),
    }
}

pub(super) fn try_receive<T>(channel: &Channel<T>) -> Result<T, TryRecvError> {
    let received = channel.try_receive();
    Caller::current().tried(received.is_ok());
    received.map_err(|missing| match missing {
        ReceiveFailure::Disconnected => TryRecvError::Disconnected,
        ReceiveFailure::Empty | ReceiveFailure::Wait(_) => TryRecvError::Empty,
    })
}

pub(super) fn receive_timeout<T>(
    channel: &Channel<T>,
    timeout: Duration,
) -> Result<T, RecvTimeoutError> {
    let options = WaitOptions::unwinding(Wait::Channel).until(deadline(timeout));
    channel.receive(options).map_err(|missing| match missing {
        ReceiveFailure::Disconnected => RecvTimeoutError::Disconnected,
        ReceiveFailure::Empty => RecvTimeoutError::Timeout,
        ReceiveFailure::Wait(WaitError::TimedOut) => RecvTimeoutError::Timeout,
        ReceiveFailure::Wait(error) => error.unwind(),
    })
}

pub(super) fn receive_timeout_cancellable<T>(
    channel: &Channel<T>,
    timeout: Duration,
) -> io::Result<Result<T, RecvTimeoutError>> {
    let options = WaitOptions::fallible(Wait::Channel).until(deadline(timeout));
    match channel.receive(options) {
        Ok(value) => Ok(Ok(value)),
        Err(ReceiveFailure::Wait(WaitError::Cancelled)) => {
            Err(WaitError::Cancelled.into_io_error())
        }
        Err(ReceiveFailure::Disconnected) => Ok(Err(RecvTimeoutError::Disconnected)),
        Err(_) => Ok(Err(RecvTimeoutError::Timeout)),
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.channel.add_sender();
        Sender { channel: Arc::clone(&self.channel) }
    }
}

impl<T> Clone for SyncSender<T> {
    fn clone(&self) -> SyncSender<T> {
        self.channel.add_sender();
        SyncSender { channel: Arc::clone(&self.channel) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.channel.remove_sender();
    }
}

impl<T> Drop for SyncSender<T> {
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

impl<T> fmt::Debug for SyncSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncSender").finish_non_exhaustive()
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
    rx: &'a Receiver<T>,
}

/// What is there: [`Receiver::try_iter`].
#[derive(Debug)]
pub struct TryIter<'a, T: 'a> {
    rx: &'a Receiver<T>,
}

/// What is received until all senders are gone, by a receiver of its own.
#[derive(Debug)]
pub struct IntoIter<T> {
    rx: Receiver<T>,
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.rx.recv().ok()
    }
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.rx.try_recv().ok()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.rx.recv().ok()
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
        IntoIter { rx: self }
    }
}
