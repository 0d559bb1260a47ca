//! Vectors whose length the caller chooses: too little memory for one is a `MemoryError`. (Rust
//! itself would end the process.)

use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;

/// The most operations of one call.
pub(crate) const MAX_OPERATIONS: usize = 1 << 24;
/// The number of operations from which on a call looks first whether their memory can be had.
const MIN_PROBED: usize = 1 << 14;
/// The memory in bytes that an operation needs in a batch of the library, at most.
const OPERATION_BYTES: usize = 320;

/// Refuses more than [`MAX_OPERATIONS`] items. Errors name them `what`.
pub(crate) fn check_count(count: usize, what: &str) -> PyResult<()> {
    if count <= MAX_OPERATIONS {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "{what} has {}{count} items: one call has at most {MAX_OPERATIONS} operations, so make \
         several calls",
        // An iterable is not read to its end.
        if count == MAX_OPERATIONS + 1 { "at least " } else { "" },
    )))
}

/// Returns a vector with memory for this number of items.
pub(crate) fn with_capacity<T>(items: usize) -> PyResult<Vec<T>> {
    let mut vector = Vec::new();
    vector.try_reserve_exact(items).map_err(|_| refused::<T>(items))?;
    Ok(vector)
}

/// Adds an item.
#[inline]
pub(crate) fn push<T>(vector: &mut Vec<T>, item: T) -> PyResult<()> {
    if vector.len() == vector.capacity() {
        vector.try_reserve(1).map_err(|_| refused::<T>(2 * vector.len()))?;
    }
    vector.push(item);
    Ok(())
}

/// Refuses a batch for which the process has not enough memory. The library, which allocates it in
/// parts, would end the process. (A small batch needs as little as any Python object.)
pub(crate) fn check_memory_of_batch(operations: usize) -> PyResult<()> {
    if operations >= MIN_PROBED {
        with_capacity::<[u8; OPERATION_BYTES]>(operations)?;
    }
    Ok(())
}

#[cold]
fn refused<T>(items: usize) -> PyErr {
    let bytes = items.saturating_mul(size_of::<T>());
    PyMemoryError::new_err(format!("cannot allocate {bytes} bytes for {items} operations"))
}
