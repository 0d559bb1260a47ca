//! The two ends of a [`Channel`], which the public senders and receivers wrap: they keep the counts
//! and translate the channel's failures into std's errors.

use super::caller::{Caller, WaitError, WaitOptions, deadline};
use super::channel::{Channel, ReceiveFailure, SendFailure};
use super::unsent::Unsent;
use cringle_core::fiber::Wait;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::time::Duration;

/// One of the senders of a channel.
pub(super) struct SendEnd<T>(Arc<Channel<T>>);

/// One of the receivers of a channel.
pub(super) struct ReceiveEnd<T>(Arc<Channel<T>>);

/// Creates a channel that buffers up to `capacity` values.
pub(super) fn ends<T>(capacity: usize) -> (SendEnd<T>, ReceiveEnd<T>) {
    let channel = Arc::new(Channel::new(capacity));
    (SendEnd(Arc::clone(&channel)), ReceiveEnd(channel))
}

impl<T> SendEnd<T> {
    /// Sends to a channel whose buffer has room for every value.
    #[inline]
    pub(super) fn send_unbounded(&self, value: T) -> Result<(), SendError<T>> {
        Caller::current().spend();
        self.0.try_send(value).map_err(|(value, _)| SendError(value))
    }

    pub(super) fn send(&self, value: T) -> Result<(), SendError<T>> {
        match self.0.send(value, WaitOptions::unwinding(Wait::Channel)) {
            Ok(()) => Ok(()),
            Err((value, failure)) => {
                if let SendFailure::Wait(error) = failure {
                    error.unwind();
                }
                Err(SendError(value))
            }
        }
    }

    pub(super) fn send_cancellable(&self, value: T) -> Result<Result<(), SendError<T>>, Unsent<T>> {
        match self.0.send(value, WaitOptions::fallible(Wait::Channel)) {
            Ok(()) => Ok(Ok(())),
            Err((value, SendFailure::Wait(error))) => Err(Unsent::new(value, error)),
            Err((value, _)) => Ok(Err(SendError(value))),
        }
    }

    pub(super) fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let sent = self.0.try_send(value);
        Caller::current().tried(sent.is_ok());
        sent.map_err(|(value, failure)| match failure {
            SendFailure::Disconnected => TrySendError::Disconnected(value),
            SendFailure::Full | SendFailure::Wait(_) => TrySendError::Full(value),
        })
    }

    pub(super) fn has_no_receiver(&self) -> bool {
        self.0.has_no_receiver()
    }
}

impl<T> ReceiveEnd<T> {
    #[inline]
    pub(super) fn recv(&self) -> Result<T, RecvError> {
        self.0.receive(WaitOptions::unwinding(Wait::Channel)).map_err(|failure| {
            if let ReceiveFailure::Wait(error) = failure {
                error.unwind();
            }
            RecvError
        })
    }

    pub(super) fn recv_cancellable(&self) -> io::Result<Result<T, RecvError>> {
        match self.0.receive(WaitOptions::fallible(Wait::Channel)) {
            Ok(value) => Ok(Ok(value)),
            Err(ReceiveFailure::Wait(error)) => Err(error.into_io_error()),
            Err(_) => Ok(Err(RecvError)),
        }
    }

    pub(super) fn try_recv(&self) -> Result<T, TryRecvError> {
        let received = self.0.try_receive();
        Caller::current().tried(received.is_ok());
        received.map_err(|failure| match failure {
            ReceiveFailure::Disconnected => TryRecvError::Disconnected,
            ReceiveFailure::Empty | ReceiveFailure::Wait(_) => TryRecvError::Empty,
        })
    }

    pub(super) fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        let options = WaitOptions::unwinding(Wait::Channel).until(deadline(timeout));
        self.0.receive(options).map_err(|failure| match failure {
            ReceiveFailure::Disconnected => RecvTimeoutError::Disconnected,
            ReceiveFailure::Empty => RecvTimeoutError::Timeout,
            ReceiveFailure::Wait(WaitError::TimedOut) => RecvTimeoutError::Timeout,
            ReceiveFailure::Wait(error) => error.unwind(),
        })
    }

    pub(super) fn recv_timeout_cancellable(
        &self,
        timeout: Duration,
    ) -> io::Result<Result<T, RecvTimeoutError>> {
        let options = WaitOptions::fallible(Wait::Channel).until(deadline(timeout));
        match self.0.receive(options) {
            Ok(value) => Ok(Ok(value)),
            Err(ReceiveFailure::Wait(error @ WaitError::Cancelled)) => Err(error.into_io_error()),
            Err(ReceiveFailure::Disconnected) => Ok(Err(RecvTimeoutError::Disconnected)),
            Err(_) => Ok(Err(RecvTimeoutError::Timeout)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<T> Clone for SendEnd<T> {
    fn clone(&self) -> SendEnd<T> {
        self.0.add_sender();
        SendEnd(Arc::clone(&self.0))
    }
}

impl<T> Clone for ReceiveEnd<T> {
    fn clone(&self) -> ReceiveEnd<T> {
        self.0.add_receiver();
        ReceiveEnd(Arc::clone(&self.0))
    }
}

impl<T> Drop for SendEnd<T> {
    fn drop(&mut self) {
        self.0.remove_sender();
    }
}

impl<T> Drop for ReceiveEnd<T> {
    fn drop(&mut self) {
        self.0.remove_receiver();
    }
}
