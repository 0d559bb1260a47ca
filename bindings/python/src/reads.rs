//! The plans of reads, and what their calls return.

use crate::buffer::{ALIGNMENT, Buffer};
use crate::copying;
use crate::engine::{self, Waiting};
use crate::errors;
use crate::errors::Failed;
use crate::file::{File, Opened};
use crate::integers;
use crate::job::Outcome;
use crate::memory::{Access, Memory};
use crate::numpy;
use crate::plan::Plan;
use crate::vectors::{self, check_count};
use pyo3::PyTraverseError;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::PyVisit;
use pyo3::types::PyInt;
use std::sync::Arc;

/// The most bytes that the kernel transfers by one operation.
const MAX_LENGTH: u64 = 0x7fff_f000;
/// The number of reads of a buffered file that are tried on the calling thread. More of them are
/// faster by the worker's ring.
const INLINE_READS: usize = 16;
/// And with at most this number of bytes: a copy cannot be interrupted by Ctrl-C.
const INLINE_BYTES: usize = 1 << 20;

/// What a call needs after its operations have ended.
pub(crate) struct Request {
    files: Files,
    offsets: Vec<u64>,
    lengths: Lengths,
    returned: Returned,
    is_write: bool,
    is_strict: bool,
}

pub(crate) enum Files {
    One(Arc<Opened>),
    Each(Vec<Arc<Opened>>),
}

pub(crate) enum Lengths {
    Same(usize),
    Each(Vec<usize>),
}

/// What a strict call returns.
pub(crate) enum Returned {
    Nothing,
    /// The result of a `fsync`, which is not one of several operations.
    Synced,
    Rows(Py<Buffer>),
    Pieces(Py<Buffer>),
    /// Copies of what was read.
    Bytes(Py<Buffer>),
    Out(Py<PyAny>),
}

impl Request {
    pub(crate) fn writes(files: Files, offsets: Vec<u64>, lengths: Lengths, strict: bool) -> Self {
        let (returned, is_write, is_strict) = (Returned::Nothing, true, strict);
        Request { files, offsets, lengths, returned, is_write, is_strict }
    }

    /// The request of a plan that synchronises a file: its only count is 0, or an error.
    pub(crate) fn sync(file: Arc<Opened>) -> Self {
        let lengths = Lengths::Same(0);
        let request = Request::writes(Files::One(file), vec![0], lengths, true);
        Request { returned: Returned::Synced, ..request }
    }

    /// Makes the call's value, or its exception.
    pub(crate) fn finish<'py>(
        self,
        py: Python<'py>,
        outcome: &Outcome,
    ) -> PyResult<Bound<'py, PyAny>> {
        // It runs Python code, during which other threads get the interpreter.
        let _waiting = Waiting::begin();
        if let (Returned::Synced, Files::One(file)) = (&self.returned, &self.files) {
            return match &outcome.failure {
                Some((_, error)) => Err(errors::of_file(py, error, file.name())),
                None => Ok(py.None().into_bound(py)),
            };
        }
        if self.is_strict {
            let at = match &self.lengths {
                Lengths::Same(len) => outcome.counts.iter().position(|&count| count != *len as i64),
                Lengths::Each(lens) => {
                    outcome.counts.iter().zip(lens).position(|(&count, &len)| count != len as i64)
                }
            };
            if let Some(at) = at {
                return Err(self.failed(py, outcome, at)?);
            }
        }
        if !self.is_strict {
            self.zero_rest(py, outcome);
        }
        let value = self.value(py, outcome)?;
        if self.is_strict {
            return Ok(value);
        }
        let counts = numpy::counts(py, &outcome.counts)?;
        match self.returned {
            Returned::Nothing => Ok(counts),
            _ => Ok((value, counts).into_pyobject(py)?.into_any()),
        }
    }

    #[cold]
    fn failed(&self, py: Python<'_>, outcome: &Outcome, index: usize) -> PyResult<PyErr> {
        let file = match &self.files {
            Files::One(file) => file,
            Files::Each(files) => &files[index],
        };
        // The first error is at the first operation that failed, unless a short count is before it.
        let error = outcome.failure.as_ref().filter(|(at, _)| *at == index).map(|(_, e)| e);
        let failed = Failed {
            index,
            name: file.name(),
            offset: self.offsets[index],
            wanted: self.lengths.at(index),
            is_write: self.is_write,
            error,
            counts: numpy::counts(py, &outcome.counts)?,
        };
        Ok(failed.into_exception(py))
    }

    /// Zeroes the bytes of an allocated buffer that were not read: it may be reused memory, with
    /// the contents of another part of the program. Of a read that failed, that is all bytes.
    fn zero_rest(&self, py: Python<'_>, outcome: &Outcome) {
        let (Returned::Rows(buffer) | Returned::Pieces(buffer)) = &self.returned else { return };
        let (buffer, count) = (buffer.get(), outcome.counts.len());
        let starts = self.lengths.starts(count, self.is_padded());
        let rest = starts.zip(&outcome.counts).enumerate().filter_map(|(at, (start, &count))| {
            let (len, read) = (self.lengths.at(at), usize::try_from(count).unwrap_or(0));
            (read < len).then(|| start + read..start + len)
        });
        engine::detached(py, || rest.for_each(|range| buffer.zero(range)));
    }

    /// Whether each piece of an allocated buffer begins at an aligned address.
    fn is_padded(&self) -> bool {
        matches!(&self.files, Files::One(file) if file.is_direct)
    }

    /// Visits the memory of the caller.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.returned {
            Returned::Out(out) => visit.call(out),
            _ => Ok(()),
        }
    }

    fn value<'py>(&self, py: Python<'py>, outcome: &Outcome) -> PyResult<Bound<'py, PyAny>> {
        match (&self.returned, &self.lengths) {
            (Returned::Nothing | Returned::Synced, _) => Ok(py.None().into_bound(py)),
            (Returned::Out(out), _) => Ok(out.bind(py).clone()),
            (Returned::Rows(buffer), lengths) => {
                numpy::rows(buffer.bind(py).clone(), self.offsets.len(), lengths.at(0))
            }
            (Returned::Pieces(buffer), lengths) => {
                let starts = lengths.starts(self.offsets.len(), self.is_padded());
                let ranges = starts.enumerate().map(|(at, start)| (start, lengths.at(at)));
                numpy::pieces(buffer.bind(py).as_any(), ranges)
            }
            (Returned::Bytes(buffer), lengths) => {
                let starts = lengths.starts(self.offsets.len(), self.is_padded());
                let read = outcome.counts.iter().map(|&count| usize::try_from(count).unwrap_or(0));
                numpy::bytes(buffer.bind(py).as_any(), starts.zip(read))
            }
        }
    }
}

impl Lengths {
    fn parse(object: &Bound<'_, PyAny>, count: usize) -> PyResult<Lengths> {
        let check = |length: u64, what: &dyn Fn() -> String| {
            if length <= MAX_LENGTH { Ok(length as usize) } else { Err(too_long(&what(), length)) }
        };
        let is_integer = object.is_instance_of::<PyInt>()
            || object.hasattr("__index__")? && !object.hasattr("__len__")?;
        if is_integer {
            let length =
                check(integers::parse_one(object, || "length".into())?, &|| "length".into());
            return length.map(Lengths::Same);
        }
        let lengths = integers::parse(object, "length")?;
        if lengths.len() != count {
            let text = format!("length has {} items, and offsets {count}", lengths.len());
            return Err(PyValueError::new_err(text));
        }
        let mut each = vectors::with_capacity(count)?;
        for (at, length) in lengths.into_iter().enumerate() {
            each.push(check(length, &|| format!("length[{at}]"))?);
        }
        Ok(Lengths::Each(each))
    }

    #[inline]
    fn at(&self, index: usize) -> usize {
        match self {
            Lengths::Same(len) => *len,
            Lengths::Each(lens) => lens[index],
        }
    }

    /// Returns the sum, and the padded sum if each range must begin at an aligned address.
    fn total(&self, count: usize, is_padded: bool) -> PyResult<usize> {
        let total = match self {
            Lengths::Same(len) => len.checked_mul(count),
            Lengths::Each(lens) => {
                lens.iter().try_fold(0_usize, |sum, &len| sum.checked_add(padded(len, is_padded)))
            }
        };
        total.filter(|&total| isize::try_from(total).is_ok()).ok_or_else(|| {
            PyValueError::new_err("the operations have more bytes than the address space")
        })
    }

    /// Returns where each range begins if they are stored one after the other.
    fn starts(&self, count: usize, is_padded: bool) -> impl Iterator<Item = usize> {
        let mut next = 0;
        (0..count).map(move |at| {
            let start = next;
            next += match self {
                Lengths::Same(len) => *len,
                Lengths::Each(lens) => padded(lens[at], is_padded),
            };
            start
        })
    }
}

fn too_long(what: &str, length: u64) -> PyErr {
    PyValueError::new_err(format!(
        "{what} is {length}: one operation has at most {MAX_LENGTH} bytes"
    ))
}

/// Refuses an operation on more memory than the kernel transfers at once: it would transfer only a
/// part.
pub(crate) fn check_bytes(len: usize, what: &str) -> PyResult<()> {
    let len = len as u64;
    if len <= MAX_LENGTH { Ok(()) } else { Err(too_long(&format!("the size of {what}"), len)) }
}

fn padded(len: usize, is_padded: bool) -> usize {
    if is_padded { len.next_multiple_of(ALIGNMENT) } else { len }
}

/// A call that is either over, or has a plan to perform.
pub(crate) enum Planned {
    Done(Outcome, Request),
    Left(Plan, Request),
    /// The reads of a mapped file, some of which may be copied.
    Mapped(Plan, Request),
}

/// Returns the argument that has two names.
pub(crate) fn one_of<'a, 'py>(
    length: Option<&'a Bound<'py, PyAny>>,
    lengths: Option<&'a Bound<'py, PyAny>>,
) -> PyResult<&'a Bound<'py, PyAny>> {
    match (length, lengths) {
        (Some(length), None) | (None, Some(length)) => Ok(length),
        (None, None) => Err(PyTypeError::new_err(
            "length must be a number, or a number for each offset, and is missing",
        )),
        (Some(_), Some(_)) => {
            Err(PyTypeError::new_err("length and lengths are two names of one argument: use one"))
        }
    }
}

/// Plans `read_many`, and performs it if it need not wait.
pub(crate) fn read_many(
    file: &Bound<'_, File>,
    offsets: &Bound<'_, PyAny>,
    length: &Bound<'_, PyAny>,
    out: Option<&Bound<'_, PyAny>>,
    as_bytes: bool,
    is_strict: bool,
) -> PyResult<Planned> {
    let py = file.py();
    let file = file.get().opened()?;
    let offsets = integers::parse(offsets, "offsets")?;
    let lengths = Lengths::parse(length, offsets.len())?;
    let is_padded = file.is_direct && out.is_none();
    let total = lengths.total(offsets.len(), is_padded)?;
    let (memory, returned) = memory_of(py, out, as_bytes, total, &lengths)?;
    let at = |start| memory.start().wrapping_add(start);
    let mut outcome = None;
    let mut plan = Plan::empty();
    if file.is_cached && offsets.len() <= INLINE_READS && total <= INLINE_BYTES {
        outcome = read_inline(py, &file, &offsets, &lengths, &memory);
    }
    if outcome.is_none() {
        plan = match file.mapped() {
            Some(_) => Plan::in_parts(offsets.len(), copying::part_len(offsets.len(), total))?,
            None => Plan::with_capacity(offsets.len())?,
        };
        let starts = lengths.starts(offsets.len(), is_padded);
        for ((index, start), &offset) in starts.enumerate().zip(&offsets) {
            // SAFETY: P1. The range is within the memory, which the plan gets below.
            unsafe { plan.read(&file, at(start), lengths.at(index), offset) };
        }
    }
    plan.memory.push(memory);
    let is_mapped = file.mapped().is_some();
    plan.files.push(Arc::clone(&file));
    let (files, is_write) = (Files::One(file), false);
    let request = Request { files, offsets, lengths, returned, is_write, is_strict };
    Ok(match outcome {
        Some(outcome) => {
            plan.memory.into_iter().for_each(|memory| memory.release(py));
            Planned::Done(outcome, request)
        }
        None if is_mapped => Planned::Mapped(plan, request),
        None => Planned::Left(plan, request),
    })
}

/// Exports the caller's memory, or allocates a buffer.
fn memory_of(
    py: Python<'_>,
    out: Option<&Bound<'_, PyAny>>,
    as_bytes: bool,
    total: usize,
    lengths: &Lengths,
) -> PyResult<(Memory, Returned)> {
    if out.is_some() && as_bytes {
        return Err(PyValueError::new_err(
            "out and as_bytes exclude each other: with out, the bytes are in its memory",
        ));
    }
    let Some(out) = out else {
        let buffer = Bound::new(py, Buffer::allocate(total)?)?;
        let memory = Memory::of_buffer(&buffer);
        return Ok(match lengths {
            _ if as_bytes => (memory, Returned::Bytes(buffer.unbind())),
            Lengths::Same(_) => (memory, Returned::Rows(buffer.unbind())),
            Lengths::Each(_) => (memory, Returned::Pieces(buffer.unbind())),
        });
    };
    let memory = Memory::of(out, Access::Write, "out")?;
    if memory.len() != total {
        let text = format!("out has {} bytes, and the reads have {total}", memory.len());
        return Err(PyValueError::new_err(text));
    }
    Ok((memory, Returned::Out(out.clone().unbind())))
}

/// Reads what is in the page cache on the calling thread. `None` if a read was not whole: the plan
/// repeats it.
fn read_inline(
    py: Python<'_>,
    file: &Opened,
    offsets: &[u64],
    lengths: &Lengths,
    memory: &Memory,
) -> Option<Outcome> {
    let fd = std::os::fd::AsRawFd::as_raw_fd(file.file());
    engine::detached(py, || {
        let mut outcome = Outcome { counts: Vec::with_capacity(INLINE_READS), failure: None };
        let mut start = 0;
        for (at, &offset) in offsets.iter().enumerate() {
            let len = lengths.at(at);
            let to = memory.start().wrapping_add(start).cast();
            let slice = libc::iovec { iov_base: to, iov_len: len };
            let (flags, offset) = (libc::RWF_NOWAIT, offset as i64);
            // SAFETY: P1. The range is within the memory, which is exported until this returns.
            let count = unsafe { libc::preadv2(fd, &raw const slice, 1, offset, flags) };
            if usize::try_from(count) != Ok(len) {
                return None;
            }
            outcome.counts.push(count as i64);
            start += len;
        }
        Some(outcome)
    })
}

/// Plans `read_into`.
pub(crate) fn read_into(ops: &Bound<'_, PyAny>, is_strict: bool) -> PyResult<(Plan, Request)> {
    let hint = integers::length_hint(ops)?.min(integers::MAX_HINT);
    let (mut files, mut offsets) = (vectors::with_capacity(hint)?, vectors::with_capacity(hint)?);
    let (mut all, mut lengths) = (vectors::with_capacity(hint)?, vectors::with_capacity(hint)?);
    for (at, op) in ops.try_iter()?.enumerate() {
        let op = op?;
        check_count(at + 1, "ops")?;
        let (file, offset, out): (Bound<'_, File>, Bound<'_, PyAny>, Bound<'_, PyAny>) =
            op.extract().map_err(|e: PyErr| {
                pyo3::exceptions::PyTypeError::new_err(format!(
                    "ops[{at}] must be (File, offset, buffer): {}",
                    e.value(op.py())
                ))
            })?;
        let offset = integers::parse_one(&offset, || format!("the offset of ops[{at}]"))?;
        let memory = Memory::of(&out, Access::Write, &format!("the buffer of ops[{at}]"))?;
        check_bytes(memory.len(), &format!("the buffer of ops[{at}]"))?;
        vectors::push(&mut files, file.get().opened()?)?;
        vectors::push(&mut offsets, offset)?;
        vectors::push(&mut lengths, memory.len())?;
        vectors::push(&mut all, memory)?;
    }
    check_overlap(&all)?;
    let mut plan = Plan::with_capacity(files.len())?;
    plan.memory = all;
    for (at, file) in files.iter().enumerate() {
        let (start, len) = (plan.memory[at].start(), lengths[at]);
        // SAFETY: P1. The plan has the memory, and gets the files below.
        unsafe { plan.read(file, start, len, offsets[at]) };
    }
    plan.files = vectors::with_capacity(files.len())?;
    plan.files.extend(files.iter().map(Arc::clone));
    let (files, lengths) = (Files::Each(files), Lengths::Each(lengths));
    let (returned, is_write) = (Returned::Nothing, false);
    Ok((plan, Request { files, offsets, lengths, returned, is_write, is_strict }))
}

/// Refuses reads into the same bytes, whose contents would depend on the order of the completions.
fn check_overlap(memory: &[Memory]) -> PyResult<()> {
    let start = |at: usize| memory[at].start().addr();
    let mut order: Vec<usize> = vectors::with_capacity(memory.len())?;
    order.extend((0..memory.len()).filter(|&at| memory[at].len() > 0));
    order.sort_unstable_by_key(|&at| start(at));
    let overlap =
        order.windows(2).find(|pair| start(pair[0]) + memory[pair[0]].len() > start(pair[1]));
    match overlap {
        None => Ok(()),
        Some(pair) => Err(PyValueError::new_err(format!(
            "the buffers of ops[{}] and ops[{}] overlap: the order of reads is not defined",
            pair[0].min(pair[1]),
            pair[0].max(pair[1])
        ))),
    }
}
