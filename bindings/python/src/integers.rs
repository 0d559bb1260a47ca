//! Offsets and lengths: arrays of integers, read in place, and any iterable of integers.

use crate::vectors::{self, check_count};
use crate::view;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyList, PyString};
use std::ffi::CStr;
use std::sync::atomic::{
    AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering,
};

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
        return Err(wrong_type(object, what));
    }
    let iterator = unless_type_error(object, object.try_iter())?;
    let iterator = iterator.ok_or_else(|| wrong_type(object, what))?;
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
        vectors::push(&mut values, parse_item(&item?, what, at)?)?;
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

#[inline]
fn parse_item(item: &Bound<'_, PyAny>, what: &str, at: usize) -> PyResult<u64> {
    match extract(item) {
        Ok(value) => u64::try_from(value).map_err(|_| negative(what, at, item)),
        Err(e) if e.is_instance_of::<PyOverflowError>(item.py()) => {
            Err(out_of_range(what, at, item))
        }
        Err(e) if e.is_instance_of::<PyTypeError>(item.py()) => {
            Err(wrong_type(item, &format!("{what}[{at}]")))
        }
        // That of the object's `__index__`.
        Err(e) => Err(e),
    }
}

/// Reads one integer that is at least 0.
pub(crate) fn parse_one(object: &Bound<'_, PyAny>, what: &str) -> PyResult<u64> {
    match extract(object) {
        Ok(value) => u64::try_from(value).map_err(|_| {
            PyValueError::new_err(format!("{what} is {value}: it must not be negative"))
        }),
        Err(e) if e.is_instance_of::<PyOverflowError>(object.py()) => Err(PyValueError::new_err(
            format!("{what} is {object}: it must be between 0 and 2⁶³ − 1"),
        )),
        Err(e) if e.is_instance_of::<PyTypeError>(object.py()) => Err(PyTypeError::new_err(
            format!("{what} must be an integer, not {}", object.get_type().name()?),
        )),
        Err(e) => Err(e),
    }
}

fn wrong_type(object: &Bound<'_, PyAny>, what: &str) -> PyErr {
    let name = object.get_type().name().map(|name| name.to_string()).unwrap_or_default();
    let wanted =
        if what.ends_with(']') { "an integer" } else { "integers: an array, list or range" };
    PyTypeError::new_err(format!("{what} must be {wanted}, not {name}"))
}

fn negative(what: &str, at: usize, value: &impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{what}[{at}] is {value}: it must not be negative"))
}

fn out_of_range(what: &str, at: usize, value: &impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{what}[{at}] is {value}: it must be between 0 and 2⁶³ − 1"))
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
            (1, true) => self.read::<i8>(what),
            (2, true) => self.read::<i16>(what),
            (4, true) => self.read::<i32>(what),
            (8, true) => self.read::<i64>(what),
            (1, false) => self.read::<u8>(what),
            (2, false) => self.read::<u16>(what),
            (4, false) => self.read::<u32>(what),
            (8, false) => self.read::<u64>(what),
            (size, _) => Err(PyTypeError::new_err(format!("{what} has items of {size} bytes"))),
        }
    }

    fn read<T: Item>(&self, what: &str) -> PyResult<Vec<u64>> {
        // SAFETY: the contract of the buffer protocol: NULL, or one extent and one stride, for one
        // dimension and these flags. (The arrays of `ctypes` have no strides although they are
        // requested: their items are neighbours.)
        let (extent, stride) = unsafe { (self.view.shape.as_ref(), self.view.strides.as_ref()) };
        let len = extent.map_or(self.view.len / self.view.itemsize, |&extent| extent) as usize;
        let stride = stride.map_or(self.view.itemsize, |&stride| stride);
        let start = self.view.buf.cast::<u8>();
        check_count(len, what)?;
        let mut values = vectors::with_capacity(len)?;
        for at in 0..len {
            // SAFETY: the contract of the buffer protocol: the item is within the memory that the
            // view exports, and has the type of the format.
            let item = unsafe { T::load(start.offset(at as isize * stride)) };
            let value = if self.is_swapped { item.swapped() } else { item };
            match value.try_into() {
                Ok(value) if value <= i64::MAX as u64 => values.push(value),
                Ok(_) => return Err(out_of_range(what, at, &value.into())),
                Err(_) => return Err(negative(what, at, &value.into())),
            }
        }
        Ok(values)
    }
}

/// An integer of an array. Another thread may change the array meanwhile: one without the GIL, in
/// a library or in free-threaded Python. So an item is loaded once, atomically, and what is
/// performed is the copy that was checked. (An item that is not aligned is loaded by bytes: then it
/// may be a mixture of two values, which is checked as any other.)
trait Item: Copy + Into<i128> + TryInto<u64> {
    /// # Safety
    ///
    /// The bytes are readable, and exported while it is called.
    unsafe fn load(from: *const u8) -> Self;

    /// Returns the integer of the same bytes in the other order.
    fn swapped(self) -> Self;
}

macro_rules! items {
    ($($integer:ty: $atomic:ty,)*) => {
        $(impl Item for $integer {
            #[inline(always)]
            unsafe fn load(from: *const u8) -> $integer {
                if from.cast::<$atomic>().is_aligned() {
                    // SAFETY: by the contract. A relaxed load of this size may be one of memory
                    // that is not writable.
                    return unsafe { &*from.cast::<$atomic>() }.load(Ordering::Relaxed);
                }
                let byte = |at| {
                    // SAFETY: as above.
                    unsafe { &*from.add(at).cast::<AtomicU8>() }.load(Ordering::Relaxed)
                };
                <$integer>::from_ne_bytes(std::array::from_fn(byte))
            }

            #[inline(always)]
            fn swapped(self) -> $integer {
                self.swap_bytes()
            }
        })*
    };
}

items! {
    i8: AtomicI8,
    i16: AtomicI16,
    i32: AtomicI32,
    i64: AtomicI64,
    u8: AtomicU8,
    u16: AtomicU16,
    u32: AtomicU32,
    u64: AtomicU64,
}

impl Drop for Array<'_> {
    fn drop(&mut self) {
        view::release(self.py, &mut self.view);
    }
}
