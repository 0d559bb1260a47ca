//! What the senders and receivers of the channels share: their methods, with examples, and traits.
//! The literal in an example is the function that creates the channel.

/// Implements `Clone`, also for values that have none.
macro_rules! clone {
    ($($name:ident),+) => {$(
        impl<T> Clone for $name<T> {
            fn clone(&self) -> $name<T> {
                $name { end: self.end.clone() }
            }
        }
    )+};
}
pub(super) use clone;

/// Defines the methods of a sender that waits for room.
macro_rules! sends {
    ($bounded:literal) => {
        /// Sends a value, and waits for room if the buffer is full. Without a buffer it waits until
        /// a receiver takes the value.
        /// May suspend the calling fiber.
        ///
        /// ```
        #[doc = concat!("let (sender, receiver) = cringle::sync::", $bounded, "(1);")]
        /// cringle::run(|| {
        ///     let send = move || (0..3).try_for_each(|n| sender.send(n));
        ///     let producer = cringle::fiber::spawn(send);
        ///     assert_eq!(receiver.iter().collect::<Vec<_>>(), [0, 1, 2]);
        ///     producer.join().unwrap().unwrap();
        /// });
        /// ```
        ///
        /// # Errors
        ///
        /// If no receiver is left. The error contains the value.
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
        #[doc = concat!("let (sender, receiver) = cringle::sync::", $bounded, "(0);")]
        /// cringle::run(|| {
        ///     cringle::fiber::scope(|s| {
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
        /// The value and a [`Cancelled`](cringle_core::cancelled::Cancelled), if the fiber is
        /// cancelled. The inner result is as of `send`.
        pub fn send_cancellable(
            &self,
            value: T,
        ) -> Result<Result<(), SendError<T>>, $crate::sync::Unsent<T>> {
            self.end.send_cancellable(value)
        }

        /// Sends a value if the buffer has room or a receiver waits.
        /// Suspends the calling fiber only after 128 failures in a row.
        ///
        /// ```
        /// use std::sync::mpsc::TrySendError;
        ///
        #[doc = concat!("let (sender, receiver) = cringle::sync::", $bounded, "(1);")]
        /// assert_eq!(sender.try_send('a'), Ok(()));
        /// assert_eq!(sender.try_send('b'), Err(TrySendError::Full('b')));
        /// drop(receiver);
        /// assert_eq!(sender.try_send('c'), Err(TrySendError::Disconnected('c')));
        /// ```
        ///
        /// # Errors
        ///
        /// If there is no room, or if no receiver is left. The error contains the value.
        pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
            self.end.try_send(value)
        }
    };
}
pub(super) use sends;

/// Defines the methods of a receiver that do not consume it.
macro_rules! receives {
    ($channel:literal) => {
        /// Like [`recv`](Self::recv), but returns an error if the calling fiber is cancelled. The
        /// receiver can be used again.
        /// May suspend the calling fiber.
        ///
        /// ```
        /// use cringle::{cancel, fiber};
        ///
        #[doc = concat!("let (sender, receiver) = cringle::sync::", $channel, ";")]
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
        /// A [`Cancelled`](cringle_core::cancelled::Cancelled) if the fiber is cancelled. The inner
        /// result is as of `recv`.
        pub fn recv_cancellable(&self) -> std::io::Result<Result<T, RecvError>> {
            self.end.recv_cancellable()
        }

        /// Receives a value if the channel has one.
        /// Suspends the calling fiber only after 128 failures in a row.
        ///
        /// ```
        /// use std::sync::mpsc::TryRecvError;
        ///
        #[doc = concat!("let (sender, receiver) = cringle::sync::", $channel, ";")]
        /// assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        /// std::thread::spawn(move || sender.send(1).unwrap()).join().unwrap();
        /// assert_eq!(receiver.try_recv(), Ok(1));
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
        /// use std::sync::mpsc::RecvTimeoutError;
        /// use std::time::Duration;
        ///
        #[doc = concat!("let (sender, receiver) = cringle::sync::", $channel, ";")]
        /// let received = cringle::run(|| receiver.recv_timeout(Duration::from_millis(1)));
        /// assert_eq!(received, Err(RecvTimeoutError::Timeout));
        /// # sender.send(1).unwrap();
        /// ```
        ///
        /// # Errors
        ///
        /// If no value arrived in time, or if the channel is empty and no sender is left.
        ///
        /// # Cancellation
        ///
        /// As [`recv`](Self::recv).
        pub fn recv_timeout(&self, timeout: std::time::Duration) -> Result<T, RecvTimeoutError> {
            self.end.recv_timeout(timeout)
        }

        /// Like [`recv_timeout`](Self::recv_timeout), but returns an error if the calling fiber is
        /// cancelled.
        /// May suspend the calling fiber.
        ///
        /// ```
        /// use std::sync::mpsc::RecvTimeoutError;
        /// use std::time::Duration;
        ///
        #[doc = concat!("let (sender, receiver) = cringle::sync::", $channel, ";")]
        /// let received = receiver.recv_timeout_cancellable(Duration::from_millis(1))?;
        /// assert_eq!(received, Err(RecvTimeoutError::Timeout));
        /// # sender.send(1).unwrap();
        /// # std::io::Result::Ok(())
        /// ```
        ///
        /// # Errors
        ///
        /// A [`Cancelled`](cringle_core::cancelled::Cancelled) if the fiber is cancelled. The inner
        /// result is as of `recv_timeout`.
        pub fn recv_timeout_cancellable(
            &self,
            timeout: std::time::Duration,
        ) -> std::io::Result<Result<T, RecvTimeoutError>> {
            self.end.recv_timeout_cancellable(timeout)
        }
    };
}
pub(super) use receives;

/// Defines what a receiver of many values has besides, and its iterators.
macro_rules! receives_many {
    ($channel:literal) => {
        impl<T> Receiver<T> {
            /// Receives a value, and waits for one if the channel is empty.
            /// May suspend the calling fiber.
            ///
            /// ```
            #[doc = concat!("let (sender, receiver) = cringle::sync::", $channel, ";")]
            /// cringle::run(|| {
            ///     cringle::fiber::spawn(move || sender.send(1).unwrap());
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
            /// A cancelled fiber unwinds here, and the values stay in the channel. A value that was
            /// handed over before the cancel is returned.
            #[inline]
            pub fn recv(&self) -> Result<T, RecvError> {
                self.end.recv()
            }

            /// Returns an iterator that receives, and waits, until all senders were dropped.
            pub fn iter(&self) -> Iter<'_, T> {
                Iter { rx: self }
            }

            $crate::sync::channel_macros::receives!($channel);
        }

        /// Iterates over received values, and ends when all senders were dropped: see
        /// [`Receiver::iter`].
        ///
        /// ```
        #[doc = concat!("let (sender, receiver) = cringle::sync::", $channel, ";")]
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

        /// Iterates over received values like [`Iter`], and owns the receiver.
        ///
        /// ```
        #[doc = concat!("let (sender, receiver) = cringle::sync::", $channel, ";")]
        /// sender.send(1).unwrap();
        /// drop(sender);
        /// assert_eq!(receiver.into_iter().next(), Some(1));
        /// ```
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
    };
}
pub(super) use receives_many;
