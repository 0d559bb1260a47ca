//! The trace of the process: who writes events now, and how it begins and ends.
//!
//! Workers look once a turn whether the epoch has changed, and take or leave their recorder then. So a
//! trace may begin and end while they run; one that sleeps notices when it wakes.

use super::clock::Clock;
use super::queue::{EventQueue, Origin};
use super::recorder::Recorder;
use super::writer::Writer;
use super::{EventNames, Written};
use crate::sys;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};

static CURRENT: Mutex<Option<Arc<Session>>> = Mutex::new(None);
/// Changes whenever that does.
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// The variable that has a trace begin with the first `run`.
const VARIABLE: &str = "CRINGLE_TRACE";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module.
#[derive(Debug)]
pub(super) struct Session {
    path: PathBuf,
    events: usize,
    state: Mutex<SessionState>,
    progress: Condvar,
    closed: AtomicBool,
    thread: Mutex<Option<JoinHandle<io::Result<Written>>>>,
    writer: Mutex<Option<Thread>>,
}

#[derive(Default)]
struct SessionState {
    queues: Vec<Arc<EventQueue>>,
    sequences: u32,
    /// So many times somebody asked for what there is to be written, and so many times it was.
    asked: u64,
    done: u64,
    ended: bool,
}

impl std::fmt::Debug for SessionState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionState").field("workers", &self.queues.len()).finish_non_exhaustive()
    }
}

/// What the session's number was when it was last looked at.
#[inline(always)]
pub(crate) fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// What the calling worker writes its events with, if there is a trace.
pub(crate) fn attach(
    worker: u32,
    names: &'static EventNames,
    is_virtual: bool,
) -> Option<Recorder> {
    let session = lock(&CURRENT).clone()?;
    let clock = if is_virtual { Clock::Virtual } else { Clock::real() };
    let writer = lock(&session.writer).clone()?;
    let mut state = lock(&session.state);
    state.sequences += 1;
    let origin =
        Origin { worker, thread: sys::thread_id(), sequence: state.sequences, clock, names };
    let queue = Arc::new(EventQueue::new(session.events, origin));
    state.queues.push(Arc::clone(&queue));
    Some(Recorder::new(queue, writer))
}

/// A `run` has ended: what its workers had to say is written, so that the file can be read.
pub(crate) fn flush_after_run() {
    if epoch() == 0 {
        return;
    }
    let session = lock(&CURRENT).clone();
    session.inspect(|session| session.flush());
}

/// Begins the trace that the environment asks for, unless there is one. It lasts as long as the process.
///
/// # Errors
///
/// As [`start`](super::start)'s, naming the variable.
pub(crate) fn start_from_environment() -> io::Result<()> {
    static ASKED: AtomicBool = AtomicBool::new(false);
    if ASKED.swap(true, Ordering::Relaxed) || lock(&CURRENT).is_some() {
        return Ok(());
    }
    let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(());
    };
    let path = with_process_number(Path::new(&value));
    match Session::start(&path, super::DEFAULT_EVENTS) {
        Ok(_) => {
            // SAFETY: the function is there as long as the process, and only waits for another thread.
            unsafe { libc::atexit(flush_at_exit) };
            Ok(())
        }
        // A program that was started by a traced one: the file is that one's.
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

/// `%p` is the number of the process.
fn with_process_number(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(text) => text.replace("%p", &std::process::id().to_string()).into(),
        None => path.into(),
    }
}

impl Session {
    pub(super) fn start(path: &Path, events: usize) -> io::Result<Arc<Session>> {
        let mut current = lock(&CURRENT);
        if let Some(other) = &*current {
            let text = format!("a trace is being written to {} already", other.path.display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        let file = open(path)?;
        let session = Arc::new(Session {
            path: path.into(),
            events,
            state: Mutex::default(),
            progress: Condvar::new(),
            closed: AtomicBool::new(false),
            thread: Mutex::new(None),
            writer: Mutex::new(None),
        });
        let theirs = Arc::clone(&session);
        let work = move || Writer::new(file, theirs).work();
        let thread = std::thread::Builder::new().name("cringle-trace".into()).spawn(work);
        let thread = thread.map_err(|e| {
            io::Error::new(e.kind(), format!("cannot start the thread that writes a trace: {e}"))
        })?;
        *lock(&session.writer) = Some(thread.thread().clone());
        *lock(&session.thread) = Some(thread);
        *current = Some(Arc::clone(&session));
        EPOCH.fetch_add(1, Ordering::Release);
        Ok(session)
    }

    /// Ends the trace, and waits until it is written.
    pub(super) fn finish(&self) -> io::Result<Written> {
        *lock(&CURRENT) = None;
        EPOCH.fetch_add(1, Ordering::Release);
        self.closed.store(true, Ordering::Release);
        let thread = lock(&self.thread).take().expect("a trace is finished once");
        thread.thread().unpark();
        match thread.join() {
            Ok(written) => written
                .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", self.path.display()))),
            Err(_) => Err(io::Error::other("the thread that writes the trace panicked")),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits until what there is now is in the file.
    fn flush(&self) {
        let writer = lock(&self.writer).clone();
        let mut state = lock(&self.state);
        state.asked += 1;
        let mine = state.asked;
        writer.inspect(Thread::unpark);
        while state.done < mine && !state.ended {
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// For the writer: the rows there are, and a number for [`written`](Self::written).
    pub(super) fn queues(&self) -> (Vec<Arc<EventQueue>>, u64) {
        let state = lock(&self.state);
        (state.queues.clone(), state.asked)
    }

    /// For the writer: this row is empty and stays so.
    pub(super) fn remove(&self, queue: &Arc<EventQueue>) {
        lock(&self.state).queues.retain(|other| !Arc::ptr_eq(queue, other));
    }

    /// For the writer: all that was there when `asked` was read is in the file.
    pub(super) fn written(&self, asked: u64) {
        let mut state = lock(&self.state);
        state.done = asked;
        self.progress.notify_all();
    }

    /// For the writer: it writes no more.
    pub(super) fn ended(&self) {
        lock(&self.state).ended = true;
        self.progress.notify_all();
    }
}

/// Makes the file empty, unless another process writes a trace to it.
fn open(path: &Path) -> io::Result<File> {
    let told = |e: io::Error| {
        io::Error::new(e.kind(), format!("cannot write a trace to {}: {e}", path.display()))
    };
    let file = File::options().write(true).create(true).truncate(false).open(path).map_err(told)?;
    // SAFETY: plain numbers; the descriptor is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        let text = format!(
            "another process writes to {}: `%p` in the name is the process's number",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
    }
    if file.metadata().map_err(told)?.is_file() {
        file.set_len(0).map_err(told)?;
    }
    Ok(file)
}
