//! Traces of every fiber and every operation, in a file that [Perfetto](https://ui.perfetto.dev)
//! opens and `cringle trace` summarises.
//!
//! There are three ways to record one: the environment variable `CRINGLE_TRACE=FILE` for any
//! program that uses the library (`%p` in the path is replaced by the process ID), `cringle --trace
//! FILE …` for the command, and [`start`] in a program.
//!
//! ```
//! use cringle::{fiber, trace};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("example.pftrace");
//! let trace = trace::start(&path)?;
//! cringle::run(|| {
//!     let _span = trace::span("greeting");
//!     fiber::spawn(|| println!("hello")).join().unwrap();
//! });
//! let written = trace.finish()?;
//! assert!(written.events > 0 && written.lost == 0);
//! assert_eq!(written.bytes, std::fs::metadata(&path)?.len());
//! # std::io::Result::Ok(())
//! ```
//!
//! # Contents
//!
//! A trace has a track for each worker, with
//!
//! - a slice for each time that a fiber runs, named after the fiber or the place that spawned it;
//!   its annotations are what the fiber waited for afterwards, and how long it was ready before it
//!   ran;
//! - within that slice, the operations that the fiber queued, the fibers that it spawned and woke,
//!   its scopes, and the program's own [spans](span);
//! - between those slices, the calls into the kernel, with the number of entries, and the worker's
//!   sleep;
//! - the departures and arrivals of fibers that
//!   [move](cringle_core::choices::Balance::Moving) between workers;
//! - flows from an operation's queueing to its completion, from a wake-up to the fiber that is
//!   woken, from a spawn to the start, and from a departure to the arrival;
//! - a counter of the operations in flight.
//!
//! # Cost
//!
//! Without a trace, each of these places tests a flag. With a trace, it writes 24 bytes into the
//! worker's own buffer, without an allocation, and a thread writes them to the file. If the buffer
//! is full, events are dropped and counted: the trace records where and how many.
//!
//! Events reach the file within a tenth of a second, or when [`run`](crate::run::run) returns or
//! the process exits, whichever is first. A truncated file is readable up to its end.

mod perfetto;
mod session;
#[doc(hidden)]
pub mod wire;
mod writer;

pub(crate) use session::{flush_after_run, start_from_environment};

use cringle_driver::trace::{Kind, Recorder};
use cringle_sys::plainly;
use session::Session;
use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

/// Starts a trace of all workers of the process, in current and later runs, until the value is
/// finished or dropped.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("example.pftrace");
/// let trace = cringle::trace::start(&path)?;
/// cringle::run(|| cringle::fiber::yield_now());
/// assert!(trace.finish()?.bytes > 0);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `ResourceBusy` if the process already has a trace, or another process writes to the file;
/// `AlreadyExists` if the file is neither empty nor a trace, or is a block device: it stays as it
/// is; and the system's error if the file cannot be created.
pub fn start(path: impl AsRef<Path>) -> io::Result<Trace> {
    Builder::new().start(path)
}

/// Options of a trace.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("example.pftrace");
/// let trace = cringle::trace::Builder::new().events(1 << 20).start(&path)?;
/// trace.finish()?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "the trace starts when `start` is called"]
pub struct Builder {
    events: usize,
}

default_by_new!(Builder);

/// The default size of a worker's buffer: 6 MiB.
const DEFAULT_EVENTS: usize = 1 << 18;

impl Builder {
    /// Returns the default options.
    ///
    /// ```
    /// let builder = cringle::trace::Builder::new();
    /// ```
    pub fn new() -> Builder {
        Builder { events: DEFAULT_EVENTS }
    }

    /// Sets the number of events, of 24 bytes each, that a worker's buffer holds: at least 64,
    /// rounded up to a power of two. The default is 262,144. A larger buffer loses fewer events if
    /// the file is written slowly.
    ///
    /// ```
    /// let builder = cringle::trace::Builder::new().events(1 << 20);
    /// ```
    pub fn events(mut self, events: usize) -> Builder {
        self.events = events;
        self
    }

    /// Starts the trace, as [`start`](fn@start) does.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("example.pftrace");
    /// cringle::trace::Builder::new().start(&path)?.finish()?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`start`](fn@start).
    pub fn start(self, path: impl AsRef<Path>) -> io::Result<Trace> {
        let path = path.as_ref();
        let session = plainly(|| Session::start(path, self.events.clamp(64, 1 << 32)))?;
        Ok(Trace { session: Some(session) })
    }
}

/// A trace that is being recorded. Dropping it ends the trace; [`finish`](Trace::finish) also
/// reports errors.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("example.pftrace");
/// let trace: cringle::trace::Trace = cringle::trace::start(&path)?;
/// drop(trace);
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "the trace ends when this is dropped"]
pub struct Trace {
    session: Option<Arc<Session>>,
}

/// The totals of a finished trace.
///
/// ```
/// use cringle::trace::{self, Written};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("example.pftrace");
/// let Written { events, lost, bytes, .. } = trace::start(&path)?.finish()?;
/// println!("{events} events in {bytes} bytes, {lost} lost");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The number of events in the file.
    pub events: u64,
    /// The number of events that were lost because their worker's buffer was full.
    pub lost: u64,
    /// The size of the file in bytes.
    pub bytes: u64,
}

impl Trace {
    /// Ends the trace, and waits until all events so far are in the file.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("example.pftrace");
    /// let written = cringle::trace::start(&path)?.finish()?;
    /// assert_eq!(written.lost, 0);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first error of writing the file. The data before it is in the file.
    pub fn finish(mut self) -> io::Result<Written> {
        let session = self.session.take().expect("a trace is finished once");
        plainly(|| session.finish())
    }
}

impl Drop for Trace {
    /// Ends the trace, and reports an error on standard error.
    fn drop(&mut self) {
        if let Some(Err(e)) = self.session.take().map(|session| plainly(|| session.finish())) {
            cringle_sys::report(format_args!("the trace is incomplete: {e}"));
        }
    }
}

/// Opens a span of the calling fiber, which ends when the value is dropped. The trace shows it as a
/// slice of that name, interrupted while the fiber waits. Without a trace, or outside of a fiber,
/// it does nothing.
///
/// ```
/// use cringle::trace;
///
/// cringle::run(|| {
///     let _parsing = trace::span("parse");
///     // …
/// });
/// ```
#[must_use = "the span ends when this is dropped"]
pub fn span(name: &'static str) -> Span {
    Recorder::with(|recorder| {
        recorder.tick();
        let event = recorder.event(Kind::SpanOpened, 0, name.as_ptr() as u64);
        recorder.put(event.extra(name.len().min(u16::MAX.into()) as u16));
    });
    Span { here: PhantomData }
}

/// An open span: see [`span`].
///
/// ```
/// let span: cringle::trace::Span = cringle::trace::span("parse");
/// drop(span);
/// ```
#[derive(Debug)]
pub struct Span {
    /// Not `Send`: a span ends on the fiber that opened it.
    here: PhantomData<*const ()>,
}

impl Drop for Span {
    fn drop(&mut self) {
        Recorder::with(|recorder| {
            recorder.tick();
            recorder.put(recorder.event(Kind::SpanClosed, 0, 0));
        });
    }
}
