//! NumPy's arrays, where NumPy is installed; lists of memoryviews where it is not.

use crate::buffer::Buffer;
use crate::errors;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyMemoryView, PyTuple};

struct NumPy {
    ndarray: Py<PyAny>,
    uint8: Py<PyAny>,
    int64: Py<PyAny>,
}

/// Empty where NumPy is not installed. It is set while the package is imported and only read by
/// calls: a first call that imported NumPy would run Python code, and so signal handlers and other
/// threads, in the midst of the initialisation.
static NUMPY: PyOnceLock<NumPy> = PyOnceLock::new();

/// Receives what the compiled half needs of Python: NumPy, or `None`, and `_errors.failure`.
#[pyfunction]
pub(crate) fn prepare(
    module: Option<&Bound<'_, PyAny>>,
    failure: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = failure.py();
    errors::prepare(failure);
    if let Some(module) = module {
        let dtype = |name| Ok::<_, PyErr>(module.call_method1("dtype", (name,))?.unbind());
        let ndarray = module.getattr("ndarray")?.unbind();
        let numpy = NumPy { ndarray, uint8: dtype("uint8")?, int64: dtype("int64")? };
        // An error if the package was imported before: then it is that NumPy.
        let _ = NUMPY.set(py, numpy);
    }
    Ok(())
}

fn numpy(py: Python<'_>) -> Option<&NumPy> {
    NUMPY.get(py)
}

/// Whether an object is an array.
pub(crate) fn is_array(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    numpy(object.py())
        .map_or(Ok(false), |numpy| object.is_instance(numpy.ndarray.bind(object.py())))
}

/// Rows of the same length in one buffer: an array of two dimensions, or a list of memoryviews.
pub(crate) fn rows<'py>(
    buffer: Bound<'py, Buffer>,
    count: usize,
    len: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let py = buffer.py();
    if let Some(numpy) = numpy(py) {
        return numpy.ndarray.bind(py).call1(((count, len), &numpy.uint8, buffer));
    }
    let view = PyMemoryView::from(buffer.as_any())?;
    list(py, (0..count).map(|row| slice(&view, row * len, len)))
}

/// Ranges of one object's memory: a list of arrays of one dimension, or of memoryviews.
pub(crate) fn pieces<'py>(
    object: &Bound<'py, PyAny>,
    ranges: impl Iterator<Item = (usize, usize)>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let numpy = numpy(py);
    let mut view = PyMemoryView::from(object)?.into_any();
    // An empty view cannot be cast.
    if view.getattr("nbytes")?.is_truthy()? {
        view = view.call_method1("cast", ("B",))?;
    }
    let pieces = ranges.map(|(start, len)| match numpy {
        Some(numpy) => numpy.ndarray.bind(py).call1((len, &numpy.uint8, &view, start)),
        None => slice(&view, start, len),
    });
    list(py, pieces)
}

/// Copies of ranges of one object's memory: a list of `bytes`.
pub(crate) fn bytes<'py>(
    object: &Bound<'py, PyAny>,
    ranges: impl Iterator<Item = (usize, usize)>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let view = PyMemoryView::from(object)?;
    let copies = ranges.map(|(start, len)| {
        // The copies may take long, and the interpreter is held.
        py.check_signals()?;
        slice(&view, start, len)?.call_method0("tobytes")
    });
    list(py, copies)
}

fn list<'py>(
    py: Python<'py>,
    items: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
) -> PyResult<Bound<'py, PyAny>> {
    let list = PyList::empty(py);
    for item in items {
        list.append(item?)?;
    }
    Ok(list.into_any())
}

/// Counts as an array, or as a memoryview of signed 64-bit integers.
pub(crate) fn counts<'py>(py: Python<'py>, counts: &[i64]) -> PyResult<Bound<'py, PyAny>> {
    let buffer = Buffer::allocate(std::mem::size_of_val(counts))?;
    // SAFETY: the buffer is new, has this length, and is aligned.
    unsafe {
        buffer.range().0.cast::<i64>().copy_from_nonoverlapping(counts.as_ptr(), counts.len());
    }
    let buffer = Bound::new(py, buffer)?;
    match numpy(py) {
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
