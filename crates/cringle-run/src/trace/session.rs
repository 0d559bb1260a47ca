//! The trace of the process: its start, its end, and the queues of the workers.
//!
//! Each worker checks once a turn whether the epoch has changed, and then takes or drops its
//! recorder. So a trace may start and end while workers run. A sleeping worker notices when it
//! wakes.

use super::writer::Writer;
use super::{Written, wire};
use cringle_driver::trace::queue::{EventQueue, Origin};
use cringle_driver::trace::{self as events, Clock, EventNames, Recorder};
use cringle_sys::fork::{self, ForkGuard, ForkLock};
use cringle_sys::lock::{Condvar, Mutex, Signal};
use cringle_sys::{self as sys, syscall};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

static CURRENT: ForkLock<Current> =
    ForkLock::new(Current { generation: 0, path: None, session: None });

/// The environment variable that starts a trace at the first `run`.
const VARIABLE: &str = "CRINGLE_TRACE";

/// The trace of a process.
struct Current {
    /// The process, as [`fork::generation`] counts them.
    generation: u32,
    /// The file of a trace that starts or is recorded.
    path: Option<PathBuf>,
    /// The trace that is recorded.
    session: Option<Arc<Session>>,
}

/// Returns the trace of this process. The lock is held for as long as it takes to read or change
/// the fields: a `fork` waits for it.
fn current() -> ForkGuard<'static, Current> {
    let mut current = CURRENT.lock();
    let generation = fork::generation();
    if current.generation != generation {
        // It is the parent's. Its writer does not exist here, and its locks may be held.
        std::mem::forget((current.path.take(), current.session.take()));
        current.generation = generation;
    }
    current
}

/// The right to start a trace, which ends when this is dropped.
struct Reservation;

impl Reservation {
    fn new(path: &Path) -> io::Result<Reservation> {
        let mut current = current();
        if let Some(other) = &current.path {
            let text = format!("the process already writes a trace to {}", other.display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        current.path = Some(path.into());
        Ok(Reservation)
    }

    /// Starts the trace.
    fn fulfil(self, session: &Arc<Session>) {
        std::mem::forget(self);
        current().session = Some(Arc::clone(session));
        events::change(attach);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        current().path = None;
    }
}

/// A trace that is being recorded.
#[derive(Debug)]
pub(super) struct Session {
    /// The process that has started it.
    generation: u32,
    path: PathBuf,
    events: usize,
    state: Mutex<SessionState>,
    progress: Condvar,
    closed: AtomicBool,
    thread: Mutex<Option<JoinHandle<io::Result<Written>>>>,
    /// Ends a pause of the writer.
    writer: Arc<Signal>,
}

#[derive(Default)]
struct SessionState {
    queues: Vec<Arc<EventQueue>>,
    sequences: u32,
    /// The number of flushes that were requested, and the number that are done.
    requested: u64,
    done: u64,
    /// Whether the writer has ended.
    ended: bool,
}

brief_debug!(SessionState, |it| workers: it.queues.len());

/// Returns a recorder for the calling worker, if there is a trace.
fn attach(worker: u32, names: &'static EventNames, is_virtual: bool) -> Option<Recorder> {
    let session = current().session.clone()?;
    let clock = if is_virtual { Clock::Virtual } else { Clock::real() };
    let mut state = session.state.lock();
    state.sequences += 1;
    let origin =
        Origin { worker, thread: sys::thread_id(), sequence: state.sequences, clock, names };
    let queue = Arc::new(EventQueue::new(session.events, origin));
    state.queues.push(Arc::clone(&queue));
    drop(state);
    Some(Recorder::new(queue, Arc::clone(&session.writer)))
}

/// Waits, after a `run`, until the events of its workers are in the file.
pub(crate) fn flush_after_run() {
    if events::epoch() == 0 {
        return;
    }
    let session = current().session.clone();
    session.inspect(|session| session.flush());
}

/// Starts the trace that the environment variable requests, unless there is one. It lasts until the
/// process exits.
///
/// # Errors
///
/// As [`start`](fn@super::start); the message names the variable.
pub(crate) fn start_from_environment() -> io::Result<()> {
    static IS_CHECKED: AtomicBool = AtomicBool::new(false);
    if IS_CHECKED.swap(true, Ordering::Relaxed) || current().path.is_some() {
        return Ok(());
    }
    let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(());
    };
    let path = sys::with_process_number(Path::new(&value));
    match Session::start(&path, super::DEFAULT_EVENTS) {
        Ok(_) => {
            // SAFETY: the contract of `atexit`: an `extern "C"` function without arguments, which
            // only waits for another thread.
            unsafe { libc::atexit(flush_at_exit) };
            Ok(())
        }
        // The parent process inherits the variable to this one, and writes to the file.
        Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
            sys::report(format_args!("no trace of this process: {VARIABLE}: {e}"));
            Ok(())
        }
        Err(e) => Err(io::Error::new(e.kind(), format!("{VARIABLE}: {e}"))),
    }
}

extern "C" fn flush_at_exit() {
    flush_after_run();
}

impl Session {
    pub(super) fn start(path: &Path, events: usize) -> io::Result<Arc<Session>> {
        let reservation = Reservation::new(path)?;
        let file = open(path)?;
        let session = Arc::new(Session {
            generation: fork::generation(),
            path: path.into(),
            events,
            state: Mutex::default(),
            progress: Condvar::new(),
            closed: AtomicBool::new(false),
            thread: Mutex::new(None),
            writer: Arc::new(Signal::new()),
        });
        let writer_session = Arc::clone(&session);
        let work = move || {
            let _thread = sys::LibraryThread::begin();
            Writer::new(file, writer_session).run()
        };
        let thread = sys::library_thread("cringle-trace".into()).spawn(work);
        let thread = thread.map_err(|e| sys::cannot_start("the writer thread of the trace", &e))?;
        *session.thread.lock() = Some(thread);
        reservation.fulfil(&session);
        Ok(session)
    }

    /// Ends the trace, and waits until the file is complete.
    pub(super) fn finish(&self) -> io::Result<Written> {
        if self.generation != fork::generation() {
            let text = format!("{}: the parent process writes this trace", self.path.display());
            return Err(io::Error::other(text));
        }
        // Dropped after the lock is released.
        let _ended = {
            let mut current = current();
            (current.path.take(), current.session.take())
        };
        events::change(attach);
        self.closed.store(true, Ordering::Release);
        let thread = self.thread.lock().take().expect("a trace is finished once");
        self.wake_writer();
        match thread.join() {
            Ok(written) => written
                .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", self.path.display()))),
            Err(_) => Err(io::Error::other("the writer thread of the trace panicked")),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits until all events so far are in the file.
    fn flush(&self) {
        let mut state = self.state.lock();
        state.requested += 1;
        let mine = state.requested;
        self.wake_writer();
        while state.done < mine && !state.ended {
            state = self.progress.wait(state);
        }
    }

    /// Makes the writer look at the queues.
    pub(super) fn wake_writer(&self) {
        self.writer.set();
    }

    /// Waits for a while, or until it is woken. For the writer.
    pub(super) fn pause(&self, limit: Duration) {
        self.writer.wait_timeout(limit);
    }

    /// Returns the queues, and the number to pass to [`written`](Self::written). For the writer.
    pub(super) fn queues(&self) -> (Vec<Arc<EventQueue>>, u64) {
        let state = self.state.lock();
        (state.queues.clone(), state.requested)
    }

    /// Removes a queue that is empty and closed. For the writer.
    pub(super) fn remove(&self, queue: &Arc<EventQueue>) {
        self.state.lock().queues.retain(|other| !Arc::ptr_eq(queue, other));
    }

    /// Completes the flushes up to number `requested`. For the writer.
    pub(super) fn written(&self, requested: u64) {
        let mut state = self.state.lock();
        state.done = requested;
        self.progress.notify_all();
    }

    /// Records that the writer has ended. For the writer.
    pub(super) fn ended(&self) {
        self.state.lock().ended = true;
        self.progress.notify_all();
    }
}

/// Creates or truncates the file, unless another process writes a trace to it or it has another
/// content.
fn open(path: &Path) -> io::Result<File> {
    let explain = |e: io::Error| {
        io::Error::new(e.kind(), format!("cannot write a trace to {}: {e}", path.display()))
    };
    // A pipe that is opened for reading, too, would have a reader.
    let mut options = File::options();
    options.read(path.is_file()).write(true).create(true).truncate(false);
    let file = options.open(path).map_err(explain)?;
    // Any number of processes may write to /dev/null.
    let is_shared = file.metadata().map_err(explain)?.file_type().is_char_device();
    // SAFETY: no pointers.
    let lock = || unsafe { syscall!(SYS_flock, file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    if !is_shared && lock() != 0 {
        let text = format!(
            "{}: another process writes a trace to it: use `%p`, the process ID, in the name",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
    }
    refuse_other_content(&file).map_err(explain)?;
    if file.metadata().map_err(explain)?.is_file() {
        file.set_len(0).map_err(explain)?;
    }
    Ok(file)
}

/// Fails if a trace would overwrite anything but an earlier trace.
fn refuse_other_content(file: &File) -> io::Result<()> {
    let existing = file.metadata()?;
    let is_device = existing.file_type().is_block_device();
    let mut start = [0; 64];
    if !is_device && (!existing.is_file() || existing.len() == 0) {
        return Ok(());
    }
    if !is_device && file.read_at(&mut start, 0).is_ok_and(|n| wire::is_trace(&start[..n])) {
        return Ok(());
    }
    let text = if is_device {
        "it is a block device: name a file"
    } else {
        "the file is not empty and not a trace: name another file, or remove it"
    };
    Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
}
