//! NumPy's arrays, where NumPy is installed; lists of memoryviews where it is not.

use crate::buffer::Buffer;
use pyo3::exceptions::{PyImportError, PyModuleNotFoundError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyMemoryView, PyTuple};

struct NumPy {
    ndarray: Py<PyAny>,
    uint8: Py<PyAny>,
    int64: Py<PyAny>,
}

static NUMPY: PyOnceLock<Option<NumPy>> = PyOnceLock::new();

fn numpy(py: Python<'_>) -> PyResult<Option<&NumPy>> {
    let numpy = NUMPY.get_or_try_init(py, || {
        let module = match py.import("numpy") {
            Ok(module) => module,
            Err(e)
                if e.is_instance_of::<PyModuleNotFoundError>(py)
                    || e.is_instance_of::<PyImportError>(py) =>
            {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let dtype = |name| Ok::<_, PyErr>(module.call_method1("dtype", (name,))?.unbind());
        let ndarray = module.getattr("ndarray")?.unbind();
        Ok(Some(NumPy { ndarray, uint8: dtype("uint8")?, int64: dtype("int64")? }))
    });
    Ok(numpy?.as_ref())
}

/// Rows of the same length in one buffer: an array of two dimensions, or a list of memoryviews.
pub(crate) fn rows<'py>(
    buffer: Bound<'py, Buffer>,
    count: usize,
    len: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let py = buffer.py();
    if let Some(numpy) = numpy(py)? {
        return numpy.ndarray.bind(py).call1(((count, len), &numpy.uint8, buffer));
    }
    let view = PyMemoryView::from(buffer.as_any())?;
    let rows = (0..count).map(|row| slice(&view, row * len, len));
    Ok(PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)?.into_any())
}

/// Ranges of one object's memory: a list of arrays of one dimension, or of memoryviews.
pub(crate) fn pieces<'py>(
    object: &Bound<'py, PyAny>,
    ranges: impl Iterator<Item = (usize, usize)>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let numpy = numpy(py)?;
    let mut view = PyMemoryView::from(object)?.into_any();
    // An empty view cannot be cast.
    if view.getattr("nbytes")?.is_truthy()? {
        view = view.call_method1("cast", ("B",))?;
    }
    let pieces = ranges.map(|(start, len)| match numpy {
        Some(numpy) => numpy.ndarray.bind(py).call1((len, &numpy.uint8, &view, start)),
        None => slice(&view, start, len),
    });
    Ok(PyList::new(py, pieces.collect::<PyResult<Vec<_>>>()?)?.into_any())
}

/// Counts as an array, or as a memoryview of signed 64-bit integers.
pub(crate) fn counts<'py>(py: Python<'py>, counts: &[i64]) -> PyResult<Bound<'py, PyAny>> {
    let buffer = Buffer::allocate(std::mem::size_of_val(counts))?;
    // SAFETY: the buffer is new, has this length, and is aligned.
    unsafe {
        buffer.range().0.cast::<i64>().copy_from_nonoverlapping(counts.as_ptr(), counts.len());
    }
    let buffer = Bound::new(py, buffer)?;
    match numpy(py)? {
        Some(numpy) => numpy.ndarray.bind(py).call1((counts.len(), &numpy.int64, buffer)),
        // An empty view cannot be cast.
        None if counts.is_empty() => py.import("array")?.call_method1("array", ("q",)),
        None => PyMemoryView::from(buffer.as_any())?.call_method1("cast", ("q",)),
    }
}

fn slice<'py>(view: &Bound<'py, PyAny>, start: usize, len: usize) -> PyResult<Bound<'py, PyAny>> {
    let py = view.py();
    let range =
        py.get_type::<pyo3::types::PySlice>().call1(PyTuple::new(py, [start, start + len])?)?;
    view.get_item(range)
}
