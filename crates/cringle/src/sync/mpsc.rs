//! Channels with one receiver: `std::sync::mpsc`, for fibers of any workers and for threads.
//!
//! A fiber may send to a thread and a thread to a fiber; only the calling fiber waits. The error
//! types are std's own. Values arrive in the order in which they were sent, and senders that wait
//! for room are served in the order of their arrival.
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

use super::endpoint::{ReceiveEnd, SendEnd, ends, opaque_debug, receive_iterators};
use super::unsent::Unsent;
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

/// Creates a channel without a limit: its senders never wait.
///
/// ```
/// let (sender, receiver) = cringle::sync::mpsc::channel();
/// sender.send("hello").unwrap();
/// assert_eq!(receiver.recv(), Ok("hello"));
/// ```
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = ends(usize::MAX);
    (Sender { end: sender }, Receiver { end: receiver, not_sync: PhantomData })
}

/// Creates a channel that buffers up to `bound` values; further senders wait. With 0 each sender
/// waits until its value is received: a rendezvous.
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
    let (sender, receiver) = ends(bound);
    (SyncSender { end: sender }, Receiver { end: receiver, not_sync: PhantomData })
}

/// The sending side of a [`channel`]. Clone it to send from several fibers or threads.
///
/// ```
/// use cringle::{fiber, sync::mpsc};
///
/// let (sender, receiver) = mpsc::channel();
/// let second = sender.clone();
/// cringle::run(|| {
///     fiber::spawn(move || sender.send("fiber").unwrap()).join().unwrap();
/// });
/// std::thread::spawn(move || second.send("thread").unwrap()).join().unwrap();
/// assert_eq!(receiver.iter().collect::<Vec<_>>(), ["fiber", "thread"]);
/// ```
pub struct Sender<T> {
    end: SendEnd<T>,
}

/// The sending side of a [`sync_channel`]. Clone it to send from several fibers or threads.
///
/// ```
/// let (sender, receiver) = cringle::sync::mpsc::sync_channel(2);
/// sender.clone().send(1).unwrap();
/// sender.send(2).unwrap();
/// assert!(sender.try_send(3).is_err(), "the buffer is full");
/// # drop(receiver);
/// ```
pub struct SyncSender<T> {
    end: SendEnd<T>,
}

/// The receiving side of a [`channel`] or a [`sync_channel`]. A channel has one, and it is not
/// `Sync`.
///
/// ```
/// let (sender, receiver) = cringle::sync::mpsc::channel();
/// std::thread::spawn(move || sender.send(7).unwrap());
/// assert_eq!(cringle::run(|| receiver.recv()), Ok(7));
/// ```
///
/// ```compile_fail
/// let (_sender, receiver) = cringle::sync::mpsc::channel::<u8>();
/// std::thread::scope(|s| { s.spawn(|| receiver.recv()); });
/// ```
pub struct Receiver<T> {
    end: ReceiveEnd<T>,
    not_sync: PhantomData<Cell<()>>,
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
    /// ```
    /// let (sender, receiver) = cringle::sync::mpsc::channel();
    /// sender.send(1).unwrap();
    /// drop(receiver);
    /// assert_eq!(sender.send(2).unwrap_err().0, 2);
    /// ```
    ///
    /// # Errors
    ///
    /// If the receiver was dropped. The error contains the value.
    #[inline]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.end.send_unbounded(value)
    }
}

impl<T> SyncSender<T> {
    /// Sends a value, and waits for room if the buffer is full. Without a buffer it waits until a
    /// receiver takes the value.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::mpsc};
    ///
    /// let (sender, receiver) = mpsc::sync_channel(1);
    /// cringle::run(|| {
    ///     let producer = fiber::spawn(move || (0..3).try_for_each(|n| sender.send(n)));
    ///     assert_eq!(receiver.iter().collect::<Vec<_>>(), [0, 1, 2]);
    ///     producer.join().unwrap().unwrap();
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// If the receiver was dropped. The error contains the value.
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
    /// use cringle::{fiber, sync::mpsc};
    ///
    /// let (sender, receiver) = mpsc::sync_channel(0);
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
    /// use cringle::sync::mpsc::{self, TrySendError};
    ///
    /// let (sender, receiver) = mpsc::sync_channel(1);
    /// assert_eq!(sender.try_send('a'), Ok(()));
    /// assert_eq!(sender.try_send('b'), Err(TrySendError::Full('b')));
    /// drop(receiver);
    /// assert_eq!(sender.try_send('c'), Err(TrySendError::Disconnected('c')));
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no room, or if the receiver was dropped. The error contains the value.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.end.try_send(value)
    }
}

impl<T> Receiver<T> {
    /// Receives a value, and waits for one if the channel is empty.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::mpsc};
    ///
    /// let (sender, receiver) = mpsc::channel();
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
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.end.recv()
    }

    /// Like [`recv`](Self::recv), but returns an error if the calling fiber is cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{cancel, fiber, sync::mpsc};
    ///
    /// let (sender, receiver) = mpsc::channel();
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
    /// use cringle::sync::mpsc::{self, TryRecvError};
    ///
    /// let (sender, receiver) = mpsc::channel();
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
    /// use cringle::sync::mpsc::{self, RecvTimeoutError};
    /// use std::time::Duration;
    ///
    /// let (_sender, receiver) = mpsc::channel::<u8>();
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
    /// use cringle::sync::mpsc::{self, RecvTimeoutError};
    /// use std::time::Duration;
    ///
    /// let (_sender, receiver) = mpsc::channel::<u8>();
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
    /// let (sender, receiver) = cringle::sync::mpsc::channel();
    /// sender.send(1).unwrap();
    /// sender.send(2).unwrap();
    /// drop(sender);
    /// assert_eq!(receiver.iter().sum::<i32>(), 3);
    /// ```
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { rx: self }
    }

    /// Returns an iterator over the values that the channel has now. It does not wait.
    ///
    /// ```
    /// let (sender, receiver) = cringle::sync::mpsc::channel();
    /// sender.send(1).unwrap();
    /// assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [1]);
    /// ```
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { rx: self }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender { end: self.end.clone() }
    }
}

impl<T> Clone for SyncSender<T> {
    fn clone(&self) -> SyncSender<T> {
        SyncSender { end: self.end.clone() }
    }
}

opaque_debug!(Sender, SyncSender, Receiver);

/// Iterates over received values, and ends when all senders were dropped: see [`Receiver::iter`].
///
/// ```
/// let (sender, receiver) = cringle::sync::mpsc::channel();
/// sender.send(1).unwrap();
/// drop(sender);
/// for value in &receiver {
///     assert_eq!(value, 1);
/// }
/// ```
#[derive(Debug)]
pub struct Iter<'a, T: 'a> {
    rx: &'a Receiver<T>,
}

/// Iterates over the values that the channel has: see [`Receiver::try_iter`].
///
/// ```
/// let (_sender, receiver) = cringle::sync::mpsc::channel::<u8>();
/// assert_eq!(receiver.try_iter().next(), None);
/// ```
#[derive(Debug)]
pub struct TryIter<'a, T: 'a> {
    rx: &'a Receiver<T>,
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.rx.try_recv().ok()
    }
}

/// Iterates over received values like [`Iter`], and owns the receiver.
///
/// ```
/// let (sender, receiver) = cringle::sync::mpsc::channel();
/// sender.send(1).unwrap();
/// drop(sender);
/// assert_eq!(receiver.into_iter().next(), Some(1));
/// ```
#[derive(Debug)]
pub struct IntoIter<T> {
    rx: Receiver<T>,
}

receive_iterators!(rx);
