//! Runs the store's work on fibers of a [`BlockIo`], for any async executor.
//!
//! A call of the store is a *job*: a closure that runs on a fiber. It may borrow its buffers and
//! files as any fiber does, so the store has no `unsafe`.

use crate::error::Error;
use crate::read::IsWanted;
use cringle::block::{BlockIo, OwnedBatch};
use futures_channel::oneshot;
use std::io;
use std::sync::Arc;

/// A handle to the workers that perform the store's reads and writes.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    io: Arc<BlockIo>,
}

impl Engine {
    pub(crate) fn new(io: Arc<BlockIo>) -> Engine {
        Engine { io }
    }

    /// Returns a future that runs the job on a fiber when it is first polled. If the future is
    /// dropped later, the job continues to its end, so that its buffers, descriptors and staging
    /// files are released; the closure that it gets returns whether the result is still wanted.
    pub(crate) fn run<T, F>(
        &self,
        job: F,
    ) -> impl Future<Output = object_store::Result<T>> + Send + use<T, F>
    where
        F: FnOnce(IsWanted<'_>) -> object_store::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let engine = self.clone();
        async move {
            let (sender, receiver) = oneshot::channel();
            let started = engine.start(move || {
                let outcome = job(&|| !sender.is_canceled());
                // If the future was dropped meanwhile, so is the outcome.
                drop(sender.send(outcome));
            });
            started.map_err(|source| Error::Closed { source })?;
            receiver.await.unwrap_or_else(|_| Err(Error::Panicked.into()))
        }
    }

    /// Starts the job on a fiber.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the `BlockIo` is closed. The job is dropped.
    pub(crate) fn start(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        // A batch without operations: its callback is the job.
        self.io.submit_then(OwnedBatch::<Vec<u8>>::new(), move |_| job())
    }
}
