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

use super::channel_macros::{clone, receives_many, sends};
use super::endpoint::{ReceiveEnd, SendEnd, ends};

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
    sends!("mpmc::bounded");
}

receives_many!("mpmc::bounded(2)");

impl<T> Receiver<T> {
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
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

clone!(Sender, Receiver);
opaque_debug!(Sender<T>, Receiver<T>);
