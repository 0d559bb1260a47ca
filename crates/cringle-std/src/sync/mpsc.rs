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

use super::channel_macros::{clone, receives_many, sends};
use super::endpoint::{ReceiveEnd, SendEnd, ends};
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};

pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

/// Creates a channel without a limit: its senders never wait.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = ends(usize::MAX);
    (Sender { end: sender }, Receiver { end: receiver, not_sync: PhantomData })
}

/// Creates a channel that buffers up to `bound` values; further senders wait. With 0 each sender
/// waits until its value is received: a rendezvous.
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
    /// # Errors
    ///
    /// If the receiver was dropped. The error contains the value.
    #[inline]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.end.send_unbounded(value)
    }
}

impl<T> SyncSender<T> {
    sends!("mpsc::sync_channel");
}

receives_many!("mpsc::channel()");

impl<T> Receiver<T> {
    /// Returns an iterator over the values that the channel has now. It does not wait.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { rx: self }
    }
}

clone!(Sender, SyncSender);
opaque_debug!(Sender<T>, SyncSender<T>, Receiver<T>);

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
