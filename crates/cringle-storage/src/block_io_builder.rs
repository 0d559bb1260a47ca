//! The options of a [`BlockIo`].

use super::BlockIo;
use cringle_core::choices::DriverChoice;
use cringle_core::refuse_in_simulation;
use cringle_run::run::{Builder, InternalOptions};
use cringle_tls::ThreadLocals;
use std::io;
use std::time::Duration;

/// Options of a [`BlockIo`]: see [`BlockIo::builder`].
///
/// ```
/// use cringle::block::BlockIo;
///
/// let io = BlockIo::builder().workers(2).batch_limit(16).in_flight_limit(64).build()?;
/// io.close()?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is started until `build` is called"]
pub struct BlockIoBuilder {
    runtime: Builder,
    workers: usize,
    batch_limit: u32,
    in_flight_limit: u32,
}

impl BlockIoBuilder {
    pub(super) fn new() -> BlockIoBuilder {
        let (workers, batch_limit, in_flight_limit) = (1, 64, 192);
        let runtime = Builder::new().open_to_outside().crash_text(false);
        BlockIoBuilder { runtime, workers, batch_limit, in_flight_limit }
    }
}

setters! {
    BlockIoBuilder:
    /// Sets the number of workers, each with a ring. The default is 1. The limits apply to each
    /// worker.
    ///
    /// ```
    /// let builder = cringle::block::BlockIo::builder().workers(2);
    /// ```
    pub fn workers(workers: usize) |it| it.workers = workers;

    /// Sets the number of operations submitted by one system call. The default is 64. A larger
    /// batch is split, and its parts are pipelined.
    ///
    /// ```
    /// let builder = cringle::block::BlockIo::builder().batch_limit(32);
    /// ```
    pub fn batch_limit(operations: u32) |it| it.batch_limit = operations;

    /// Sets the number of operations in the kernel at once. The default is 192. Beyond it,
    /// submitters wait.
    ///
    /// ```
    /// let builder = cringle::block::BlockIo::builder().in_flight_limit(128);
    /// ```
    pub fn in_flight_limit(operations: u32) |it| it.in_flight_limit = operations;

    /// Sets whether each worker is pinned to a CPU. The default is `false`.
    ///
    /// ```
    /// let builder = cringle::block::BlockIo::builder().pin(true);
    /// ```
    pub fn pin(pin: bool) |it| it.runtime = it.runtime.pin(pin);

    /// Sets whether the workers poll the device for the completions of direct reads and writes
    /// (`IORING_SETUP_IOPOLL`) instead of waiting for interrupts. The default is `false`. Polling
    /// shortens each operation, and keeps one CPU per worker busy while operations are in flight.
    ///
    /// It applies to files opened with `O_DIRECT` on a device with polled queues
    /// ([`Polling::of`](super::Polling::of) reports whether); other files are not affected. A
    /// polled operation cannot be cancelled: a cancel waits for the device.
    ///
    /// ```
    /// let builder = cringle::block::BlockIo::builder().iopoll(true);
    /// ```
    pub fn iopoll(poll: bool) |it| it.runtime = it.runtime.iopoll(poll);

    /// Chooses how operations reach the kernel. The default is [`DriverChoice::Auto`].
    ///
    /// ```
    /// use cringle::{block::BlockIo, runtime::{self, Driver, DriverChoice}};
    ///
    /// let io = BlockIo::builder().driver(DriverChoice::Epoll).build()?;
    /// assert!(matches!(io.call(runtime::driver)?, Driver::Epoll(_)));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn driver(driver: DriverChoice) |it| it.runtime = it.runtime.driver(driver);

    /// Chooses whose thread-locals the closures of [`BlockIo::spawn`] and the callbacks of
    /// [`BlockIo::submit_then`] use: see [`Builder::thread_locals`], which has the same default. A
    /// library whose callbacks are short, or belong to a language runtime that keeps something
    /// large for each thread, chooses [`ThreadLocals::Shared`]: they see the thread-locals of the
    /// worker's OS thread then.
    ///
    /// ```
    /// use cringle::{block::BlockIo, runtime::{self, ThreadLocals}};
    ///
    /// let io = BlockIo::builder().thread_locals(ThreadLocals::Shared).build()?;
    /// assert_eq!(io.call(runtime::thread_locals)?, Some(ThreadLocals::Shared));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn thread_locals(choice: ThreadLocals) |it| it.runtime = it.runtime.thread_locals(choice);

    /// Sets whether a handler of `SIGSEGV` and `SIGBUS` reports stack overflows of fibers: see
    /// [`Builder::overflow_handler`]. The default is `true`. A library that leaves the signals to
    /// its program sets `false`.
    ///
    /// ```
    /// let builder = cringle::block::BlockIo::builder().overflow_handler(false);
    /// ```
    pub fn overflow_handler(install: bool) |it| it.runtime = it.runtime.overflow_handler(install);
}

impl BlockIoBuilder {
    /// Reports each callback that runs longer than this without suspending, because the other
    /// submissions of its worker wait meanwhile: see [`Builder::watchdog`], which has the same
    /// default. A library whose program has standard error for itself disables it by `None`, which
    /// also disables the line about a cancelled operation that does not end for five seconds.
    ///
    /// ```
    /// let builder = cringle::block::BlockIo::builder().watchdog(None);
    /// ```
    pub fn watchdog(mut self, limit: impl Into<Option<Duration>>) -> BlockIoBuilder {
        let limit = limit.into();
        self.runtime = self.runtime.watchdog(limit).stubborn_reports(limit.is_some());
        self
    }

    /// Starts the workers.
    ///
    /// ```
    /// use cringle::block::BlockIo;
    ///
    /// let error = BlockIo::builder().batch_limit(0).build().unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` unless 0 < `batch_limit` < 2¹⁵ and `batch_limit` ≤ `in_flight_limit` < 2¹⁶;
    /// `Unsupported` in a simulation; otherwise as [`Builder::run`].
    pub fn build(self) -> io::Result<BlockIo> {
        self.validate()?;
        refuse_in_simulation(
            "a BlockIo has its own threads and rings, which a simulation cannot contain: call \
             Batch::submit on the fiber",
        )?;
        let runtime = self
            .runtime
            .workers(self.workers)
            // A write takes two entries.
            .ring_entries((2 * self.batch_limit).min(1 << 15))
            .in_flight_limit(self.in_flight_limit);
        BlockIo::start_workers(runtime, self.workers)
    }

    fn validate(&self) -> io::Result<()> {
        let (batch, in_flight) = (self.batch_limit, self.in_flight_limit);
        let what = if batch == 0 || batch >= 1 << 15 {
            format!("batch_limit is {batch}, and must be at least 1 and less than 32768")
        } else if in_flight < batch || in_flight >= 1 << 16 {
            format!(
                "in_flight_limit is {in_flight}, and must be at least batch_limit ({batch}) and \
                 less than 65536"
            )
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("BlockIo cannot start: {what}")))
    }
}
