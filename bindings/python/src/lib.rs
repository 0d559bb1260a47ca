//! The compiled half of the Python package `cringle`: its `_native` module.
//!
//! One call of Python becomes one [`Plan`](plan::Plan): the operations, the memory that they use
//! and the files. A [`Job`](job::Job) performs it on a worker of the [`Engine`](engine::Engine).
//!
//! # Invariants
//!
//! - **P1** Memory that an operation uses is exported by its Python object (a `Py_buffer`, a DLPack
//!   capsule, or a reference to a [`Buffer`](buffer::Buffer)) until the last operation of the plan
//!   has ended. The job owns the exports and the worker owns the job, so it does not matter what
//!   the caller drops, raises or interrupts.
//! - **P2** A worker never runs Python code and never waits for the interpreter. The exports of a
//!   job that no caller waits for are released later by a thread of Python: see [`graveyard`].
//! - **P3** No thread waits without the interpreter being free for other threads, and none asks for
//!   it again in Rust's frames after its end, which would kill the thread there.
//! - **P4** A child of `fork` does not touch the engine, job or locks of its parent: see [`fork`].
//! - **P5** No lock is held while Python runs, or while a thread waits for the interpreter. Without
//!   a GIL, the collector and `os.fork` stop all attached threads, where they run Python: so none
//!   of them has a lock, and one that waits for a lock waits for a thread that runs.
//!
//! # Choices
//!
//! - Memory is exported and not copied: a copy into memory of our own would need no exports, and
//!   cost a second copy of each byte. Results as `bytes` are copies of a
//!   [`Buffer`](buffer::Buffer). (The kernel could fill new `bytes` before other code sees them,
//!   but their memory is not aligned for direct I/O, and a short read would leave bytes to cut
//!   off.)
//! - A waiting caller runs the handlers of signals every 10 ms. If a handler raises, as that of
//!   Ctrl-C does, the caller leaves at once: what the kernel has ends in the background, and the
//!   rest is not submitted. (Refused: to cancel and wait. A read from a disk cannot be cancelled,
//!   and a stuck read would make the program deaf to Ctrl-C.) A task of asyncio waits instead: its
//!   loop continues, and a program that catches `CancelledError` expects its buffers to be its own.
//! - An event loop is woken through an eventfd ([`notifier`]).
//! - This is a workspace of its own: a test program of a member would be linked with libpython, and
//!   the root's commands must work on a machine without Python. The wheel uses the stable ABI of
//!   Python 3.11, the first with the buffer protocol.

mod block_io;
mod buffer;
mod copying;
mod dlpack;
mod engine;
mod errors;
mod file;
mod fork;
mod graveyard;
mod integers;
mod job;
mod memory;
mod notifier;
mod numpy;
mod open;
mod pending;
mod plan;
mod reads;
mod sabotage;
mod vectors;
mod view;
mod writes;

use pyo3::prelude::*;

// P5, and each class is `frozen`: its state is atomic, or behind a lock.
#[pymodule(gil_used = false)]
mod _native {
    use super::*;
    use pyo3::exceptions::PyImportError;
    use pyo3::ffi;

    #[pymodule_export]
    use super::block_io::BlockIo;
    #[pymodule_export]
    use super::buffer::Buffer;
    #[pymodule_export]
    use super::engine::shutdown;
    #[pymodule_export]
    use super::file::File;
    #[pymodule_export]
    use super::notifier::Notifier;
    #[pymodule_export]
    use super::numpy::prepare;
    #[pymodule_export]
    use super::open::open;
    #[pymodule_export]
    use super::pending::Pending;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        refuse_subinterpreters()?;
        fork::watch()?;
        // Before the interpreter ends, all batches end: their threads must not need it any more.
        let shutdown = module.getattr("shutdown")?;
        module.py().import("atexit")?.call_method1("register", (shutdown,))?;
        Ok(())
    }
    /// The engines are those of the process: the end of one interpreter would close those of all.
    fn refuse_subinterpreters() -> PyResult<()> {
        // SAFETY: the thread is attached, so it has an interpreter.
        let id = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
        if id == 0 {
            return Ok(());
        }
        Err(PyImportError::new_err(
            "cringle works in the main interpreter only: import it there, or use multiprocessing \
             instead of subinterpreters",
        ))
    }
}
