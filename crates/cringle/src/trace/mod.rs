//! A trace: what every fiber and every operation did, in a file that [Perfetto](https://ui.perfetto.dev)
//! opens and `cringle trace` summarises.
//!
//! Three ways to one: the environment variable `CRINGLE_TRACE=FILE` for any program that uses the library
//! (`%p` in it is the process's number), `cringle --trace FILE …` for the command, and [`start`] for what a
//! program chooses itself.
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
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # What is in it
//!
//! A track for each worker. On it a slice for each time that a fiber runs, called by the fiber's name, or
//! by where it was spawned; the slice says what the fiber waited for afterwards, and how long it was ready
//! before it ran. Within: the operations that it queued, the fibers it made and woke, scopes, the
//! program's own [spans](span). Between: when the kernel was entered, with how much, and when the worker
//! slept. Flows lead from an operation's queueing to its completion, from who wakes to who is woken, and
//! from a spawn to the start. A counter says how many operations are under way.
//!
//! # What it costs
//!
//! Without a trace, a test of a pointer at each of those places. With one, 24 bytes into the worker's own
//! buffer and no allocation; a thread writes them down. When the buffer is full, events are counted and
//! dropped: the trace says where and how many.
//!
//! What a worker had to say is in the file a tenth of a second later, or when [`run`](crate::run) returns
//! or the process exits, whichever is first. A file that ends early is read as far as it goes.

mod clock;
mod event;
mod perfetto;
mod queue;
mod recorder;
mod session;
#[doc(hidden)]
pub mod wire;
mod writer;

pub(crate) use clock::Clock;
pub(crate) use event::{Cause, Kind};
pub(crate) use recorder::Recorder;
pub(crate) use session::{attach, epoch, flush_after_run, start_from_environment};

use session::Session;
use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

/// What numbers in events mean: the layers above know.
#[derive(Debug)]
pub(crate) struct EventNames {
    pub(crate) ops: &'static [&'static str],
    /// Their completions.
    pub(crate) done: &'static [&'static str],
    /// The last one is for a fiber that lets others run, and waits for nothing.
    pub(crate) waits: &'static [&'static str],
    /// The wait that is for ops.
    pub(crate) wait_for_ops: u8,
    pub(crate) reasons: &'static [&'static str],
}

/// Begins a trace of all that the process's workers do, in runs that go on and in those to come, until
/// the value is finished or dropped.
///
/// # Errors
///
/// `ResourceBusy` if the process has a trace already, or another process writes to this file; and what
/// the system says where the file cannot be made.
pub fn start(path: impl AsRef<Path>) -> io::Result<Trace> {
    Builder::new().start(path)
}

/// Begins a trace with other sizes than [`start`]'s.
#[derive(Clone, Debug)]
#[must_use = "no trace begins before `start` is called"]
pub struct Builder {
    events: usize,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

/// 6 MiB for each worker.
const DEFAULT_EVENTS: usize = 1 << 18;

impl Builder {
    /// The defaults.
    pub fn new() -> Builder {
        Builder { events: DEFAULT_EVENTS }
    }

    /// How many events a worker's buffer holds, 64 at least; of 24 bytes each, rounded up to a power of
    /// two (default: 262,144). A larger one loses less where the file is written slowly.
    pub fn events(mut self, events: usize) -> Builder {
        self.events = events;
        self
    }

    /// As [`start`].
    ///
    /// # Errors
    ///
    /// As [`start`]'s.
    pub fn start(self, path: impl AsRef<Path>) -> io::Result<Trace> {
        let session = Session::start(path.as_ref(), self.events.clamp(64, 1 << 32))?;
        Ok(Trace { session: Some(session) })
    }
}

/// A trace that is being written, until this is finished or dropped.
#[derive(Debug)]
#[must_use = "the trace ends when this is dropped"]
pub struct Trace {
    session: Option<Arc<Session>>,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// Events in the file.
    pub events: u64,
    /// Events that found no room in their worker's buffer.
    pub lost: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

impl Trace {
    /// Ends the trace: what came until now is in the file then.
    ///
    /// # Errors
    ///
    /// What the system said when the file was written to. What was written before is there.
    pub fn finish(mut self) -> io::Result<Written> {
        self.session.take().expect("it is finished once").finish()
    }
}

impl Drop for Trace {
    /// Ends the trace. An error is reported on standard error.
    fn drop(&mut self) {
        if let Some(Err(e)) = self.session.take().map(|session| session.finish()) {
            crate::sys::report(format_args!("the trace is incomplete: {e}"));
        }
    }
}

/// A part of what the calling fiber does, until the value is dropped: a slice of that name in the trace,
/// interrupted where the fiber waits. Without a trace, and outside of a fiber, nothing.
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

/// See [`span`].
#[derive(Debug)]
pub struct Span {
    /// It ends on the fiber that it began on.
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
