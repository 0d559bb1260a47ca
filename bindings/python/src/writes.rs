//! The plans of writes and syncs.

use crate::file::File;
use crate::integers;
use crate::memory::{Access, Memory};
use crate::plan::{Plan, Sync};
use crate::reads::{self, Files, Lengths, Request};
use crate::vectors::{self, check_count};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::sync::Arc;

/// Plans `write_many`: a buffer for each offset, or one buffer in equal parts.
pub(crate) fn write_many(
    file: &Bound<'_, File>,
    offsets: &Bound<'_, PyAny>,
    data: &Bound<'_, PyAny>,
    is_strict: bool,
) -> PyResult<(Plan, Request)> {
    let file = file.get().opened()?;
    file.check_write()?;
    let offsets = integers::parse(offsets, "offsets")?;
    let mut plan = Plan::with_capacity(offsets.len())?;
    let lengths = if data.is_instance_of::<PyList>() || data.is_instance_of::<PyTuple>() {
        for (at, item) in data.try_iter()?.enumerate() {
            check_count(at + 1, "data")?;
            let memory = Memory::of(&item?, Access::Read, &format!("data[{at}]"))?;
            reads::check_bytes(memory.len(), &format!("data[{at}]"))?;
            vectors::push(&mut plan.memory, memory)?;
        }
        if plan.memory.len() != offsets.len() {
            return Err(PyValueError::new_err(format!(
                "data has {} buffers, and offsets {} items",
                plan.memory.len(),
                offsets.len()
            )));
        }
        let mut lengths = vectors::with_capacity(offsets.len())?;
        for (at, &offset) in offsets.iter().enumerate() {
            let (start, len) = (plan.memory[at].start(), plan.memory[at].len());
            lengths.push(len);
            // SAFETY: P1. The plan has the memory, and gets the file below.
            unsafe { plan.write(&file, start, len, offset) };
        }
        Lengths::Each(lengths)
    } else {
        let memory = Memory::of(data, Access::Read, "data")?;
        let len = part_of(memory.len(), offsets.len())?;
        reads::check_bytes(len, "each write's part of data")?;
        for (at, &offset) in offsets.iter().enumerate() {
            // SAFETY: P1. The part is within the memory, which the plan gets below, as the file.
            unsafe { plan.write(&file, memory.start().wrapping_add(at * len), len, offset) };
        }
        plan.memory.push(memory);
        Lengths::Same(len)
    };
    plan.files.push(Arc::clone(&file));
    Ok((plan, Request::writes(Files::One(file), offsets, lengths, is_strict)))
}

/// Plans `fsync`.
pub(crate) fn sync(file: &Bound<'_, File>, data_only: bool) -> PyResult<(Plan, Request)> {
    let file = file.get().opened()?;
    file.check_sync()?;
    let how = if data_only { Sync::Data } else { Sync::All };
    Ok((Plan::sync(Arc::clone(&file), how), Request::sync(file)))
}

fn part_of(bytes: usize, count: usize) -> PyResult<usize> {
    if count == 0 && bytes == 0 {
        return Ok(0);
    }
    if count == 0 || !bytes.is_multiple_of(count) {
        return Err(PyValueError::new_err(format!(
            "data has {bytes} bytes, which {count} writes cannot share equally: pass a list of \
             buffers for writes of different lengths"
        )));
    }
    Ok(bytes / count)
}
