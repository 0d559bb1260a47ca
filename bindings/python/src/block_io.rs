//! The class `BlockIO`.

use crate::engine::{self, Engine, Entered};
use crate::file::File;
use crate::job::Job;
use crate::pending::Pending;
use crate::plan::Plan;
use crate::reads::{self, Planned, Request};
use crate::{copying, graveyard, integers, writes};
use cringle::block::BlockIo as Io;
use cringle::runtime::{self, Driver, DriverChoice};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};

/// The most operations that one system call submits.
const BATCH_LIMIT: u32 = 64;

/// Workers with rings, which perform batches for any thread.
#[pyclass(frozen, subclass, weakref, name = "BlockIO", module = "cringle._native")]
pub(crate) struct BlockIo {
    engine: Arc<Engine>,
    driver: OnceLock<(&'static str, Option<String>)>,
}

#[pymethods]
impl BlockIo {
    #[new]
    #[pyo3(signature = (workers = 1, depth = 192, driver = "auto"))]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = workers_of)] workers: i64,
        #[pyo3(from_py_with = depth_of)] depth: i64,
        driver: &str,
    ) -> PyResult<BlockIo> {
        let _entered = Entered::begin();
        let within = |value: i64, max: u32, what: &str| match u32::try_from(value) {
            Ok(value) if (1..=max).contains(&value) => Ok(value),
            _ => Err(PyValueError::new_err(format!(
                "{what} is {value}: it must be between 1 and {max}"
            ))),
        };
        let workers = within(workers, 1024, "workers")?;
        let depth = within(depth, 65_535, "depth")?;
        let driver = match driver {
            "auto" => DriverChoice::Auto,
            "uring" => DriverChoice::Uring,
            "epoll" => DriverChoice::Epoll,
            other => {
                let text = format!("driver is {other:?}: it must be auto, uring or epoll");
                return Err(PyValueError::new_err(text));
            }
        };
        let builder = Io::builder().workers(workers as usize).driver(driver);
        let builder = builder.batch_limit(depth.min(BATCH_LIMIT)).in_flight_limit(depth);
        // SIGSEGV is Python's (`faulthandler`). No foreign code runs on the workers' stacks.
        let builder = builder.overflow_handler(false);
        // Standard error is the program's, unless its user asks for the watchdog.
        let asked = std::env::var_os("CRINGLE_WATCHDOG").is_some_and(|value| !value.is_empty());
        let builder = if asked { builder } else { builder.watchdog(None) };
        let io = engine::detached(py, || builder.build())?;
        Ok(BlockIo { engine: Engine::new(io)?, driver: OnceLock::new() })
    }

    /// Reads ``length`` bytes at each offset, and returns when all reads have ended.
    ///
    /// ``offsets`` is an array of integers, or an iterable of integers.
    /// ``length`` is a number, or a number for each offset; ``lengths`` is another name for it.
    ///
    /// Without ``out``, returns an array of uint8 with a row for each offset, or a list of arrays
    /// if ``length`` has a number for each; without NumPy, a list of memoryviews. ``out`` is a
    /// writable contiguous buffer that the reads fill one after the other; it is returned. With
    /// ``as_bytes=True``, returns a list of ``bytes``, with or without NumPy.
    ///
    /// Raises ``BatchError`` for the first read that failed, ``ShortCountError`` if it was short.
    /// With ``strict=False``, returns ``(data, counts)``: for each read the number of bytes, or its
    /// negated ``errno``. (``bytes`` have this number of bytes, or none.)
    #[pyo3(
        signature = (
            file, offsets, length = None, out = None, *, lengths = None, strict = true,
            as_bytes = false
        )
    )]
    #[allow(clippy::too_many_arguments, reason = "they are the call's")]
    fn read_many<'py>(
        &self,
        file: &Bound<'py, File>,
        offsets: &Bound<'py, PyAny>,
        length: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        lengths: Option<&Bound<'py, PyAny>>,
        strict: bool,
        as_bytes: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = file.py();
        let _entered = self.begin(py)?;
        let length = reads::one_of(length, lengths)?;
        match reads::read_many(file, offsets, length, out, as_bytes, strict)? {
            Planned::Done(outcome, request) => request.finish(py, &outcome),
            Planned::Left(plan, request) => self.perform(py, plan, request),
            Planned::Mapped(plan, request) => {
                request.finish(py, &copying::perform(py, &self.engine, plan)?)
            }
        }
    }

    /// Reads into many buffers: ``ops`` yields ``(file, offset, buffer)``, and each buffer is
    /// filled. Errors are those of ``read_many``; with ``strict=False``, returns the counts. The
    /// buffers must not overlap.
    #[pyo3(signature = (ops, *, strict = true))]
    fn read_into<'py>(
        &self,
        py: Python<'py>,
        ops: &Bound<'py, PyAny>,
        strict: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _entered = self.begin(py)?;
        let (plan, request) = reads::read_into(ops, strict)?;
        self.perform(py, plan, request)
    }

    /// Writes ``data`` at the offsets: a list of buffers, one for each offset, or one buffer, of
    /// which each write has an equal part. Errors are those of ``read_many``; with
    /// ``strict=False``, returns the counts. The order of writes to the same bytes is not defined.
    #[pyo3(signature = (file, offsets, data, *, strict = true))]
    fn write_many<'py>(
        &self,
        py: Python<'py>,
        file: &Bound<'py, File>,
        offsets: &Bound<'py, PyAny>,
        data: &Bound<'py, PyAny>,
        strict: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _entered = self.begin(py)?;
        let (plan, request) = writes::write_many(file, offsets, data, strict)?;
        self.perform(py, plan, request)
    }

    /// Waits until all that was written to the file is durable; with ``data_only``, as
    /// ``os.fdatasync``.
    #[pyo3(signature = (file, *, data_only = false))]
    fn fsync<'py>(
        &self,
        py: Python<'py>,
        file: &Bound<'py, File>,
        data_only: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _entered = self.begin(py)?;
        let (plan, request) = writes::sync(file, data_only)?;
        self.perform(py, plan, request)
    }

    /// Starts a ``read_many``, and returns a ``Pending`` at once.
    #[pyo3(
        signature = (
            file, offsets, length = None, out = None, *, lengths = None, strict = true,
            as_bytes = false
        )
    )]
    #[allow(clippy::too_many_arguments, reason = "they are the call's")]
    fn start_read_many(
        &self,
        file: &Bound<'_, File>,
        offsets: &Bound<'_, PyAny>,
        length: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
        lengths: Option<&Bound<'_, PyAny>>,
        strict: bool,
        as_bytes: bool,
    ) -> PyResult<Pending> {
        let py = file.py();
        let _entered = self.begin(py)?;
        let length = reads::one_of(length, lengths)?;
        match reads::read_many(file, offsets, length, out, as_bytes, strict)? {
            Planned::Done(outcome, request) => {
                Ok(Pending::over(self.engine.born(), outcome, request))
            }
            Planned::Left(plan, request) | Planned::Mapped(plan, request) => {
                self.start(plan, request)
            }
        }
    }

    /// Starts a ``read_into``, and returns a ``Pending`` at once.
    #[pyo3(signature = (ops, *, strict = true))]
    fn start_read_into(
        &self,
        py: Python<'_>,
        ops: &Bound<'_, PyAny>,
        strict: bool,
    ) -> PyResult<Pending> {
        let _entered = self.begin(py)?;
        let (plan, request) = reads::read_into(ops, strict)?;
        self.start(plan, request)
    }

    /// Starts a ``write_many``, and returns a ``Pending`` at once.
    #[pyo3(signature = (file, offsets, data, *, strict = true))]
    fn start_write_many(
        &self,
        py: Python<'_>,
        file: &Bound<'_, File>,
        offsets: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
        strict: bool,
    ) -> PyResult<Pending> {
        let _entered = self.begin(py)?;
        let (plan, request) = writes::write_many(file, offsets, data, strict)?;
        self.start(plan, request)
    }

    /// Starts an ``fsync``, and returns a ``Pending`` at once.
    #[pyo3(signature = (file, *, data_only = false))]
    fn start_fsync(
        &self,
        py: Python<'_>,
        file: &Bound<'_, File>,
        data_only: bool,
    ) -> PyResult<Pending> {
        let _entered = self.begin(py)?;
        let (plan, request) = writes::sync(file, data_only)?;
        self.start(plan, request)
    }

    /// How operations reach the kernel: `uring` or `epoll`.
    #[getter]
    fn driver(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.driver_and_reason(py)?.0)
    }

    /// Why there is no ring.
    #[getter]
    fn driver_reason(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.driver_and_reason(py)?.1.clone())
    }

    /// The counters of the workers.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.on_worker(py, runtime::stats)?.expect("called on a worker");
        let (total, counters) = (stats.total(), PyDict::new(py));
        for (name, value) in [
            ("workers", stats.workers.len() as u64),
            ("enters", total.enters),
            ("entries", total.entries.sum()),
            ("in_flight", total.in_flight),
            ("inline_hits", total.inline_hits),
            ("inline_misses", total.inline_misses),
            ("mapped_copies", total.mapped_copies),
            ("room_waits", total.room_waits),
            ("sleeps", total.sleeps),
            ("wakes", total.wakes),
            ("messages", total.messages),
        ] {
            counters.set_item(name, value)?;
        }
        Ok(counters)
    }

    #[getter]
    fn closed(&self) -> bool {
        self.engine.is_closed()
    }

    /// Refuses further calls and waits for all operations under way. A second call waits, too. A
    /// signal's handler that raises ends the wait.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.engine.close(py)
    }

    fn __enter__(slf: Py<BlockIo>) -> Py<BlockIo> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.engine.close(py)
    }
}

impl BlockIo {
    /// Begins a call: its arguments may run Python code.
    fn begin(&self, py: Python<'_>) -> PyResult<Entered> {
        let entered = Entered::begin();
        graveyard::release(py);
        self.engine.check()?;
        Ok(entered)
    }

    fn perform<'py>(
        &self,
        py: Python<'py>,
        plan: Plan,
        request: Request,
    ) -> PyResult<Bound<'py, PyAny>> {
        let outcome = Job::start(&self.engine, plan)?.wait(py)?;
        request.finish(py, &outcome)
    }

    fn start(&self, plan: Plan, request: Request) -> PyResult<Pending> {
        let job = Job::start(&self.engine, plan)?;
        Ok(Pending::started(self.engine.born(), job, request))
    }

    fn driver_and_reason(&self, py: Python<'_>) -> PyResult<&(&'static str, Option<String>)> {
        if let Some(known) = self.driver.get() {
            return Ok(known);
        }
        let driver = match self.on_worker(py, runtime::driver)? {
            Driver::Epoll(why) => {
                ("epoll", Some(why.to_string().replace("Builder::driver", "driver=\"epoll\"")))
            }
            _ => ("uring", None),
        };
        Ok(self.driver.get_or_init(|| driver))
    }

    /// Calls a function on a worker, and returns its value.
    fn on_worker<T: Send + 'static>(&self, py: Python<'_>, call: fn() -> T) -> PyResult<T> {
        let (sender, receiver) = mpsc::channel();
        self.engine.run(move || drop(sender.send(call())))?;
        let receiver = std::sync::Mutex::new(receiver);
        engine::interruptible(py, |limit| receiver.lock().ok()?.recv_timeout(limit).ok())
    }
}

fn workers_of(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    integers::argument(object, "workers")
}

fn depth_of(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    integers::argument(object, "depth")
}
