//! Exports of the buffer protocol.
//!
//! An exporter counts its exports, and keeps its memory where it is until none is left (**P1**).
//! The `array.array` of free-threaded CPython 3.14 counts without a lock: of two exports at once it
//! could count one. So both calls lock the object. In an interpreter with a GIL that does nothing.

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use std::alloc::{Layout, alloc_zeroed};
use std::ffi::c_int;
use std::ptr::NonNull;

/// Exports the memory of an object. The caller releases it.
pub(crate) fn export(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Box<ffi::Py_buffer>> {
    // A call may export millions of them, so too little memory is an exception.
    let layout = Layout::new::<ffi::Py_buffer>();
    // SAFETY: the contract of `alloc_zeroed`: the size is not 0.
    let Some(zeroed) = NonNull::new(unsafe { alloc_zeroed(layout) }.cast::<ffi::Py_buffer>())
    else {
        return Err(PyMemoryError::new_err("cannot allocate a view of a buffer"));
    };
    // SAFETY: the contract of `from_raw`: the allocator of boxes has returned it for this layout.
    // All-zero is a valid view, which exports nothing.
    let mut view = unsafe { Box::from_raw(zeroed.as_ptr()) };
    // SAFETY: the contract of `PyObject_GetBuffer`: the view is released before its memory is
    // freed, and is not moved, because it is boxed.
    let fill = || unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) };
    match with_critical_section(object, fill) {
        0 => Ok(view),
        _ => Err(PyErr::fetch(object.py())),
    }
}

/// Ends an export.
pub(crate) fn release(py: Python<'_>, view: &mut ffi::Py_buffer) {
    // SAFETY: a view refers to its exporter, or to none. This reference keeps the object until it
    // is unlocked: the view's may be the last one.
    let exporter = unsafe { Bound::from_borrowed_ptr_or_opt(py, view.obj) };
    let view = &raw mut *view;
    // SAFETY: the contract of `PyBuffer_Release`: `export` has filled the view, and the thread is
    // attached.
    let end = || unsafe { ffi::PyBuffer_Release(view) };
    match exporter {
        Some(exporter) => with_critical_section(&exporter, end),
        None => end(),
    }
}
