//! The memory of Python objects, exported for as long as a value lives (**P1**).

use crate::buffer::Buffer;
use crate::{dlpack, graveyard, numpy, view};
use pyo3::PyTraverseError;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pyclass::PyVisit;
use std::ffi::CStr;

/// A contiguous range of memory that a Python object exports.
pub(crate) struct Memory {
    start: *mut u8,
    len: usize,
    /// `None` only while it is dropped.
    owner: Option<Owner>,
}

/// What keeps the memory.
pub(crate) enum Owner {
    View(Box<ffi::Py_buffer>),
    Object(Py<PyAny>),
}

// SAFETY: P1, P2. A worker passes the address to the kernel and gives the owner to the graveyard;
// only a thread that is attached to the interpreter releases it.
unsafe impl Send for Owner {}
// SAFETY: as above; a shared reference gives no access.
unsafe impl Sync for Owner {}
// SAFETY: as for `Owner`: the address is that of its memory.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// How the memory is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Memory {
    /// Exports the memory of an object with the buffer protocol or DLPack. Errors name it `what`.
    pub(crate) fn of(object: &Bound<'_, PyAny>, access: Access, what: &str) -> PyResult<Memory> {
        if let Ok(buffer) = object.cast_exact::<Buffer>() {
            return Ok(Memory::of_buffer(buffer));
        }
        // SAFETY: the contract of `PyObject_CheckBuffer`: a valid object.
        if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } == 1 {
            return Memory::of_view(object, access, what);
        }
        if let Some(tensor) = dlpack::export(object, access, what)? {
            return Ok(Memory {
                start: tensor.start,
                len: tensor.len,
                owner: Some(Owner::Object(tensor.capsule)),
            });
        }
        let kind = if access == Access::Write { "writable buffer" } else { "buffer" };
        Err(PyTypeError::new_err(format!(
            "{what} must be a contiguous {kind} (an array, bytearray, memoryview, tensor in main \
             memory), not {}",
            object.get_type().name()?
        )))
    }

    /// The memory of a [`Buffer`], which stays while the object does.
    pub(crate) fn of_buffer(buffer: &Bound<'_, Buffer>) -> Memory {
        let (start, len) = buffer.get().range();
        Memory { start, len, owner: Some(Owner::Object(buffer.clone().into_any().unbind())) }
    }

    fn of_view(object: &Bound<'_, PyAny>, access: Access, what: &str) -> PyResult<Memory> {
        let flags = match access {
            Access::Read => ffi::PyBUF_SIMPLE,
            Access::Write => ffi::PyBUF_WRITABLE,
        };
        let py = object.py();
        let (view, has_format) =
            match view::export(object, flags | ffi::PyBUF_ND | ffi::PyBUF_FORMAT) {
                // NumPy has no format for some types, such as dates; then it exports the bytes
                // alone.
                Err(cause) if is_refusal(py, &cause) => (view::export(object, flags), false),
                exported => (exported, true),
            };
        let view = view.map_err(|cause| {
            if !is_refusal(py, &cause) {
                return cause;
            }
            let kind =
                if access == Access::Write { "writable and contiguous" } else { "contiguous" };
            let text = format!("{what} must be {kind}: {}", cause.value(py));
            PyValueError::new_err(text)
        })?;
        let has_objects = match has_format {
            true => Ok(has_object_format(&view)),
            false => may_hold_objects(object, &view),
        };
        let (start, len) = (view.buf.cast(), view.len as usize);
        let memory = Memory { start, len, owner: Some(Owner::View(view)) };
        if has_objects? {
            let text = format!("{what} must be memory of bytes or numbers, not of Python objects");
            return Err(PyTypeError::new_err(text));
        }
        Ok(memory)
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Visits the object that the export keeps.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.owner {
            // SAFETY: the layout of `Py` is that of a pointer to an object, which the view has a
            // reference to if it is not null.
            Some(Owner::View(view)) if !view.obj.is_null() => unsafe {
                visit.call(&*(&raw const view.obj).cast::<Py<PyAny>>())
            },
            Some(Owner::Object(object)) => visit.call(object),
            _ => Ok(()),
        }
    }

    /// Ends the export.
    pub(crate) fn release(mut self, py: Python<'_>) {
        if let Some(owner) = self.owner.take() {
            owner.release(py);
        }
    }
}

/// Whether an exporter does not support a view of this kind. Any other exception is one of the
/// object's own code, or a signal handler's.
fn is_refusal(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyBufferError>(py)
        || error.is_instance_of::<PyValueError>(py)
        || error.is_instance_of::<PyTypeError>(py)
}

/// Whether memory that is exported without a format may have references to Python objects. Items of
/// one byte are none. A larger one is unknown, unless NumPy itself exports it and has its type.
fn may_hold_objects(object: &Bound<'_, PyAny>, view: &ffi::Py_buffer) -> PyResult<bool> {
    // (NumPy reports items of one byte, too, where it exports the bytes alone.)
    if view.obj == object.as_ptr() && numpy::is_array(object)? {
        return object.getattr("dtype")?.getattr("hasobject")?.is_truthy();
    }
    Ok(view.itemsize != 1)
}

/// Whether the memory has references to Python objects, which bytes of a file must not replace.
fn has_object_format(view: &ffi::Py_buffer) -> bool {
    // Bytes.
    if view.format.is_null() {
        return false;
    }
    // SAFETY: the contract of `PyBUF_FORMAT`: a string that lives as long as the view.
    let format = unsafe { CStr::from_ptr(view.format) }.to_bytes();
    // Every other part is the name of a field.
    format.split(|&byte| byte == b':').step_by(2).any(|part| part.contains(&b'O'))
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            owner.release_anywhere();
        }
    }
}

impl Owner {
    /// Releases it at once on a thread of Python, and soon on a worker. (On a worker, PyO3 would
    /// take a lock, which a `fork` could leave held: **P4**.)
    pub(crate) fn release_anywhere(self) {
        if cringle::runtime::worker().is_some() {
            return graveyard::bury(self);
        }
        let mut owner = Some(self);
        Python::try_attach(|py| owner.take().map(|owner| owner.release(py)));
        // The interpreter has ended: nothing can be released any more.
        std::mem::forget(owner);
    }

    pub(crate) fn release(self, py: Python<'_>) {
        match self {
            Owner::View(mut view) => view::release(py, &mut view),
            Owner::Object(object) => drop(object),
        }
    }
}
