//! A [`BlockIo`] of the library, with what Python adds: a wait for its jobs that signals
//! interrupt, and an end before the interpreter's.

use crate::fork::Born;
use crate::graveyard;
use cringle::block::BlockIo;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The longest time that a waiting thread does not look for signals.
pub(crate) const SIGNAL_CHECK: Duration = Duration::from_millis(10);
/// The longest time that the end of the interpreter waits for daemon threads in the code of a
/// call's arguments. One that stays there is not noticed, unless it then asks for the interpreter.
const ENTERED_LIMIT: Duration = Duration::from_secs(5);

pub(crate) struct Engine {
    io: ManuallyDrop<BlockIo>,
    born: Born,
    is_closed: AtomicBool,
    in_flight: Arc<InFlight>,
}

/// The number of jobs that have not ended.
#[derive(Default)]
pub(crate) struct InFlight {
    count: Mutex<usize>,
    none: Condvar,
}

/// The engines that `shutdown` closes. Only attached threads use it, and keep it locked only while
/// they are, so that a `fork` finds it free: it has the GIL, or has stopped the others (**P5**).
static ENGINES: Mutex<Vec<Weak<Engine>>> = Mutex::new(Vec::new());
static IS_SHUT_DOWN: AtomicBool = AtomicBool::new(false);
/// The [`Waiting`]s of this process. A child of `fork` has none of its parent's (**P4**).
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// The [`Entered`]s of this process.
static ENTERED: AtomicUsize = AtomicUsize::new(0);

impl Engine {
    pub(crate) fn new(io: BlockIo) -> PyResult<Arc<Engine>> {
        let engine = Arc::new(Engine {
            io: ManuallyDrop::new(io),
            born: Born::here(),
            is_closed: AtomicBool::new(false),
            in_flight: Arc::default(),
        });
        let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: `shutdown`, which locks after it has set this, finds the engine.
        if IS_SHUT_DOWN.load(Ordering::SeqCst) {
            drop(engines);
            return Err(PyRuntimeError::new_err("the interpreter ends: no BlockIO can be created"));
        }
        engines.retain(|engine| engine.strong_count() > 0);
        engines.push(Arc::downgrade(&engine));
        drop(engines);
        Ok(engine)
    }

    /// Refuses calls after the end, and those of a child of `fork`.
    pub(crate) fn check(&self) -> PyResult<()> {
        self.born.check()?;
        if self.is_closed() {
            return Err(closed());
        }
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(crate) fn born(&self) -> Born {
        self.born
    }

    /// Runs the job on a worker. It must not panic, use Python or wait for it (**P2**).
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) -> PyResult<()> {
        self.born.check()?;
        // Counted first: either `close` waits for the job, or the check sees that it has begun.
        let end = InFlight::begin(&self.in_flight);
        self.check()?;
        let ran = self.io.spawn(move || {
            let end = end;
            job();
            drop(end);
        });
        ran.map_err(|_| closed())
    }

    /// Refuses further jobs and waits for those that have not ended. A second call waits, too.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.born.is_here() {
            return Ok(());
        }
        self.is_closed.store(true, Ordering::SeqCst);
        interruptible(py, |limit| self.in_flight.wait(limit).then_some(()))?;
        self.end(py);
        graveyard::release(py);
        Ok(())
    }

    fn end(&self, py: Python<'_>) {
        self.is_closed.store(true, Ordering::SeqCst);
        let _waiting = Waiting::begin();
        py.detach(|| self.io.close()).expect("no callback closes its BlockIo");
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The parent's threads do not exist in a child: their end cannot be awaited (P4).
        if !self.born.is_here() {
            return;
        }
        // `None` if the interpreter has ended, and `shutdown` has closed the engine.
        Python::try_attach(|py| self.end(py));
        if self.is_closed() {
            // SAFETY: P4. It is dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.io) };
        }
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("the BlockIO is closed: create another one, or close it later")
}

impl InFlight {
    fn begin(this: &Arc<InFlight>) -> Begun {
        *this.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Begun(Arc::clone(this))
    }

    fn wait(&self, limit: Duration) -> bool {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.none.wait_timeout_while(count, limit, |count| *count > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }
}

/// A job that has not ended.
struct Begun(Arc<InFlight>);

impl Drop for Begun {
    fn drop(&mut self) {
        let mut count = self.0.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count -= 1;
        if *count == 0 {
            self.0.none.notify_all();
        }
    }
}

/// A thread in Rust's frames that is, or may be, without the interpreter (**P3**). `shutdown` waits
/// until it has left them.
pub(crate) struct Waiting(Born);

impl Waiting {
    pub(crate) fn begin() -> Waiting {
        WAITING.fetch_add(1, Ordering::SeqCst);
        Waiting(Born::here())
    }

    /// Forgets the threads of the parent. One that has called `fork` continues in the child, and
    /// what it has begun does not count there.
    pub(crate) fn forget_in_child() {
        WAITING.store(0, Ordering::SeqCst);
        ENTERED.store(0, Ordering::SeqCst);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.0.is_here() {
            WAITING.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// A thread in a call that runs Python's code in the midst of Rust's frames, where another thread
/// may get the interpreter (**P3**): the code of the arguments, such as a generator of offsets.
/// That code may wait for ever, so `shutdown` waits for [`ENTERED_LIMIT`] at most.
pub(crate) struct Entered(Born);

impl Entered {
    pub(crate) fn begin() -> Entered {
        ENTERED.fetch_add(1, Ordering::SeqCst);
        Entered(Born::here())
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.0.is_here() {
            ENTERED.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Calls `f`, which does not wait for long, while other threads use the interpreter. At the end of
/// the interpreter it keeps it: a thread that asks for it again then is killed, in Rust's frames.
pub(crate) fn detached<T: Send>(py: Python<'_>, f: impl FnOnce() -> T + Send) -> T {
    // Counted first: either `shutdown` waits for this thread, or the thread sees it.
    let _waiting = Waiting::begin();
    if IS_SHUT_DOWN.load(Ordering::SeqCst) {
        return f();
    }
    py.detach(f)
}

/// Begins a call that needs no engine. `shutdown` waits for it, and later ones are refused.
pub(crate) fn enter() -> PyResult<Entered> {
    let entered = Entered::begin();
    if IS_SHUT_DOWN.load(Ordering::SeqCst) {
        return Err(PyRuntimeError::new_err("the interpreter ends: no file can be opened"));
    }
    Ok(entered)
}

/// Calls `f`, which may wait for ever, while other threads use the interpreter. `shutdown` does not
/// wait for `f`. If the interpreter ends meanwhile, the thread never asks for it again: it stops
/// here when `f` has returned, and ends with the process. (Only a daemon thread can be here then.)
pub(crate) fn detached_for_long<T: Send>(
    py: Python<'_>,
    entered: Entered,
    f: impl FnOnce() -> T + Send,
) -> (T, Entered) {
    py.detach(|| {
        drop(entered);
        let value = f();
        // Either `shutdown` waits until this thread has left Rust's frames, or this thread sees it.
        let entered = Entered::begin();
        if IS_SHUT_DOWN.load(Ordering::SeqCst) {
            drop(entered);
            loop {
                std::thread::park();
            }
        }
        (value, entered)
    })
}

/// Calls `wait` with the longest time that it may wait, until it returns a value. Other threads use
/// the interpreter meanwhile. In between it runs the handlers of signals, and returns the exception
/// of one that raises.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    wait: impl Fn(Duration) -> Option<T> + Sync,
) -> PyResult<T> {
    let _waiting = Waiting::begin();
    loop {
        if let Some(value) = py.detach(|| wait(SIGNAL_CHECK)) {
            return Ok(value);
        }
        py.check_signals()?;
    }
}

/// Closes every engine. The interpreter calls it at its end, while threads can still use it.
#[pyfunction]
#[pyo3(name = "shutdown")]
pub(crate) fn shutdown(py: Python<'_>) {
    IS_SHUT_DOWN.store(true, Ordering::SeqCst);
    let engines: Vec<_> = {
        let engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
        engines.iter().filter_map(Weak::upgrade).collect()
    };
    for engine in engines.iter().filter(|engine| engine.born.is_here()) {
        engine.end(py);
    }
    drop(engines);
    graveyard::release(py);
    // A daemon thread that was without the interpreter now waits for it. After the end it would be
    // killed in the middle of Rust's frames, so it leaves them first.
    let begun = Instant::now();
    let is_entered = || ENTERED.load(Ordering::SeqCst) > 0 && begun.elapsed() < ENTERED_LIMIT;
    while WAITING.load(Ordering::SeqCst) > 0 || is_entered() {
        py.detach(|| match begun.elapsed() {
            elapsed if elapsed < Duration::from_millis(1) => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_millis(1)),
        });
    }
}
