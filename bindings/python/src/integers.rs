//! Offsets and lengths: arrays of integers, which are copied, and any iterable of integers.

use crate::vectors::{self, check_count};
use crate::view;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyList, PyString};
use std::ffi::{CStr, c_char};

/// The most items for which memory is allocated before they are seen.
pub(crate) const MAX_HINT: usize = 1 << 16;

/// Reads integers that are at least 0, one for each operation. Errors name them `what`.
pub(crate) fn parse(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<u64>> {
    let is_text = object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyByteArray>()
        || object.is_instance_of::<PyString>();
    if let Ok(list) = object.cast_exact::<PyList>() {
        check_count(list.len(), what)?;
        return collect(list.iter().map(Ok), list.len(), what);
    }
    // SAFETY: the contract of `PyObject_CheckBuffer`: a valid object.
    if !is_text && unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } == 1 {
        return Array::export(object, what)?.values(what);
    }
    if is_text {
        return Err(wrong_type(object, what, MANY));
    }
    let iterator = unless_type_error(object, object.try_iter())?;
    let iterator = iterator.ok_or_else(|| wrong_type(object, what, MANY))?;
    collect(iterator, length_hint(object)?, what)
}

fn collect<'py>(
    items: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
    hint: usize,
    what: &str,
) -> PyResult<Vec<u64>> {
    let mut values = vectors::with_capacity(hint.min(MAX_HINT))?;
    for (at, item) in items.enumerate() {
        check_count(at + 1, what)?;
        let value = parse_one(&item?, || format!("{what}[{at}]"))?;
        vectors::push(&mut values, value)?;
    }
    Ok(values)
}

/// The length of an iterable. It is only a hint, which the object's own code may have made up.
pub(crate) fn length_hint(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    Ok(unless_type_error(object, object.len())?.unwrap_or(0))
}

/// Returns `None` for a `TypeError`. Any other exception is one of the object's own code.
fn unless_type_error<T>(object: &Bound<'_, PyAny>, result: PyResult<T>) -> PyResult<Option<T>> {
    match result {
        Err(e) if e.is_instance_of::<PyTypeError>(object.py()) => Ok(None),
        other => other.map(Some),
    }
}

/// Converts an argument that is an integer.
pub(crate) fn argument(object: &Bound<'_, PyAny>, what: &str) -> PyResult<i64> {
    object.extract().map_err(|e: PyErr| {
        if !e.is_instance_of::<PyOverflowError>(object.py()) {
            return e;
        }
        let place = if object.lt(0).unwrap_or(false) { "small" } else { "large" };
        PyOverflowError::new_err(format!("{what} is {object}: the number is too {place}"))
    })
}

/// Converts an integer, as a list's index is. No file has an offset `True`: as in arrays, a bool is
/// of the wrong type.
#[inline]
fn extract(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    if object.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err("a bool"));
    }
    object.extract()
}

/// Reads one integer that is at least 0. Errors name it `what`.
#[inline]
pub(crate) fn parse_one(object: &Bound<'_, PyAny>, what: impl Fn() -> String) -> PyResult<u64> {
    match extract(object) {
        Ok(value) => u64::try_from(value).map_err(|_| negative(&what(), object)),
        Err(e) if e.is_instance_of::<PyOverflowError>(object.py()) => {
            Err(out_of_range(&what(), object))
        }
        Err(e) if e.is_instance_of::<PyTypeError>(object.py()) => {
            Err(wrong_type(object, &what(), "an integer"))
        }
        // That of the object's `__index__`.
        Err(e) => Err(e),
    }
}

/// What is wanted of an argument with many numbers.
const MANY: &str = "integers: an array, list or range";

fn wrong_type(object: &Bound<'_, PyAny>, what: &str, wanted: &str) -> PyErr {
    let name = object.get_type().name().map(|name| name.to_string()).unwrap_or_default();
    PyTypeError::new_err(format!("{what} must be {wanted}, not {name}"))
}

fn negative(what: &str, value: &impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{what} is {value}: it must not be negative"))
}

fn out_of_range(what: &str, value: &impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{what} is {value}: it must be between 0 and 2⁶³ − 1"))
}

/// An exported one-dimensional array.
struct Array<'py> {
    py: Python<'py>,
    view: Box<ffi::Py_buffer>,
    is_signed: bool,
    /// Whether the order of an item's bytes is not that of the processor.
    is_swapped: bool,
}

impl<'py> Array<'py> {
    fn export(object: &Bound<'py, PyAny>, what: &str) -> PyResult<Array<'py>> {
        let py = object.py();
        let view = view::export(object, ffi::PyBUF_STRIDES | ffi::PyBUF_FORMAT)?;
        let mut array = Array { py, view, is_signed: false, is_swapped: false };
        let format = if array.view.format.is_null() {
            c"B"
        } else {
            // SAFETY: the contract of `PyBUF_FORMAT`: a string that lives as long as the view.
            unsafe { CStr::from_ptr(array.view.format) }
        };
        let (order, kind) = match *format.to_bytes() {
            [kind] => (b'@', kind),
            [order @ (b'@' | b'=' | b'<' | b'>' | b'!'), kind] => (order, kind),
            _ => (b'@', b' '),
        };
        array.is_swapped = match order {
            b'<' => cfg!(target_endian = "big"),
            b'>' | b'!' => cfg!(target_endian = "little"),
            _ => false,
        };
        array.is_signed = match kind {
            b'b' | b'h' | b'i' | b'l' | b'q' | b'n' => true,
            b'B' | b'H' | b'I' | b'L' | b'Q' | b'N' => false,
            // NumPy makes floats of an empty list.
            _ if array.view.len == 0 => false,
            _ => {
                let format = format.to_string_lossy();
                return Err(PyTypeError::new_err(format!(
                    "{what} must be an array of integers, not of format '{format}'"
                )));
            }
        };
        if array.view.ndim != 1 {
            return Err(PyValueError::new_err(format!(
                "{what} has {} dimensions: it must have one",
                array.view.ndim
            )));
        }
        Ok(array)
    }

    fn values(&self, what: &str) -> PyResult<Vec<u64>> {
        match (self.view.itemsize, self.is_signed) {
            _ if self.view.len == 0 => Ok(Vec::new()),
            (1, true) => self.read(what, |item| i8::from_ne_bytes(item).into()),
            (2, true) => self.read(what, |item| i16::from_ne_bytes(item).into()),
            (4, true) => self.read(what, |item| i32::from_ne_bytes(item).into()),
            (8, true) => self.read(what, |item| i64::from_ne_bytes(item).into()),
            (1, false) => self.read(what, |item| u8::from_ne_bytes(item).into()),
            (2, false) => self.read(what, |item| u16::from_ne_bytes(item).into()),
            (4, false) => self.read(what, |item| u32::from_ne_bytes(item).into()),
            (8, false) => self.read(what, |item| u64::from_ne_bytes(item).into()),
            (size, _) => Err(PyTypeError::new_err(format!("{what} has items of {size} bytes"))),
        }
    }

    /// Reads the items, whose bytes `number` converts. They are copied first: another thread may
    /// change the array meanwhile, one without the GIL, in a library or in free-threaded Python.
    /// What is performed is the copy that was checked.
    fn read<const N: usize>(
        &self,
        what: &str,
        number: impl Fn([u8; N]) -> i128,
    ) -> PyResult<Vec<u64>> {
        let (bytes, order) = (self.view.len, b'C' as c_char);
        let count = bytes as usize / N;
        check_count(count, what)?;
        let mut items: Vec<[u8; N]> = vectors::with_capacity((bytes as usize).div_ceil(N))?;
        let to = items.as_mut_ptr().cast();
        // SAFETY: the contract of `PyBuffer_ToContiguous`: it stores the bytes of the view, for
        // which there is room, or fails.
        if unsafe { ffi::PyBuffer_ToContiguous(to, &raw const *self.view, bytes, order) } != 0 {
            return Err(PyErr::fetch(self.py));
        }
        // SAFETY: the call has stored them.
        unsafe { items.set_len(count) };
        let mut values = vectors::with_capacity(count)?;
        for (at, mut item) in items.into_iter().enumerate() {
            if self.is_swapped {
                item.reverse();
            }
            let (value, name) = (number(item), || format!("{what}[{at}]"));
            match u64::try_from(value) {
                Ok(value) if value <= i64::MAX as u64 => values.push(value),
                Ok(_) => return Err(out_of_range(&name(), &value)),
                Err(_) => return Err(negative(&name(), &value)),
            }
        }
        Ok(values)
    }
}

impl Drop for Array<'_> {
    fn drop(&mut self) {
        view::release(self.py, &mut self.view);
    }
}
