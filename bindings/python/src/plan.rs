//! The operations of one call.

use crate::file::Opened;
use crate::job::Outcome;
use crate::memory::Memory;
use crate::{sabotage, vectors};
use cringle::block::{Batch, Results};
use pyo3::prelude::*;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of operations that are submitted together. A cancel takes effect between two batches.
const BATCH: usize = 4096;

/// Operations, with all that they need until they have ended (**P1**).
pub(crate) struct Plan {
    /// Dropped before the files, to which they refer.
    pub(crate) parts: Vec<Part>,
    syncs: Option<Sync>,
    len: usize,
    capacity: usize,
    part_len: usize,
    /// Taken by the job, which ends the exports.
    pub(crate) memory: Vec<Memory>,
    pub(crate) files: Vec<Arc<Opened>>,
}

/// Operations that are submitted together.
pub(crate) struct Part {
    /// The number of the first one.
    pub(crate) start: usize,
    pub(crate) batch: Batch<'static>,
}

/// How a file is synchronised.
#[derive(Clone, Copy)]
pub(crate) enum Sync {
    All,
    Data,
}

impl Plan {
    /// A plan of this number of operations.
    pub(crate) fn with_capacity(operations: usize) -> PyResult<Plan> {
        Plan::in_parts(operations, BATCH)
    }

    pub(crate) fn empty() -> Plan {
        let (parts, memory, files) = (Vec::new(), Vec::new(), Vec::new());
        Plan { parts, syncs: None, len: 0, capacity: 0, part_len: BATCH, memory, files }
    }

    /// A plan of parts of this number of operations, or of [`BATCH`] if that is smaller.
    pub(crate) fn in_parts(capacity: usize, part_len: usize) -> PyResult<Plan> {
        vectors::check_memory_of_batch(capacity)?;
        let part_len = part_len.min(BATCH);
        let parts = vectors::with_capacity(capacity.div_ceil(part_len))?;
        Ok(Plan { parts, capacity, part_len, ..Plan::empty() })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn sync(file: Arc<Opened>, how: Sync) -> Plan {
        let mut plan = Plan::empty();
        plan.files.push(file);
        plan.syncs = Some(how);
        plan
    }

    /// Adds a read.
    ///
    /// # Safety
    ///
    /// `memory` of this plan has the writable range; `files` gets the file before the plan is
    /// performed.
    #[inline]
    pub(crate) unsafe fn read(&mut self, file: &Arc<Opened>, to: *mut u8, len: usize, offset: u64) {
        // SAFETY: P1. The plan keeps the file for longer than its batches.
        let file: &'static Opened = unsafe { &*Arc::as_ptr(file) };
        let batch = self.batch();
        // SAFETY: P1. The job keeps the memory until the batch has been performed. Rust has no
        // reference to it.
        unsafe {
            match file.mapped() {
                Some(mapped) => batch.read_mapped_raw(mapped, to, len, offset),
                None => batch.read_raw(file.file(), to, len, offset),
            };
        }
    }

    /// Adds a write.
    ///
    /// # Safety
    ///
    /// As [`read`](Plan::read), of a readable range.
    #[inline]
    pub(crate) unsafe fn write(
        &mut self,
        file: &Arc<Opened>,
        from: *const u8,
        len: usize,
        offset: u64,
    ) {
        // SAFETY: P1. The plan keeps the file for longer than its batches.
        let file: &'static Opened = unsafe { &*Arc::as_ptr(file) };
        // SAFETY: P1. The job keeps the memory until the batch has been performed.
        unsafe { self.batch().write_raw(file.file(), from, len, offset) };
    }

    #[inline]
    fn batch(&mut self) -> &mut Batch<'static> {
        if self.parts.last().is_none_or(|part| part.batch.len() == self.part_len) {
            let left = self.capacity.saturating_sub(self.len).max(1);
            let batch = Batch::with_capacity(left.min(self.part_len));
            self.parts.push(Part { start: self.len, batch });
        }
        self.len += 1;
        &mut self.parts.last_mut().expect("pushed with its first operation").batch
    }

    /// Performs the plan on a fiber of a worker. The outcome has the memory for the results.
    pub(crate) fn perform(mut self, is_cancelled: &AtomicBool, mut outcome: Outcome) -> Outcome {
        sabotage::at("jobs");
        if let Some(how) = self.syncs {
            let file = self.files[0].file();
            let synced = match how {
                Sync::All => file.sync_all(),
                Sync::Data => file.sync_data(),
            };
            outcome.push(synced.map(|()| 0));
        }
        for Part { batch, .. } in std::mem::take(&mut self.parts) {
            if is_cancelled.load(Ordering::Relaxed) {
                let cancelled = || Err(io::Error::from_raw_os_error(libc::ECANCELED));
                (0..batch.len()).for_each(|_| outcome.push(cancelled()));
            } else {
                outcome.add(batch.submit());
            }
        }
        outcome
    }
}

impl Outcome {
    pub(crate) fn with_capacity(operations: usize) -> PyResult<Outcome> {
        Ok(Outcome { counts: vectors::with_capacity(operations)?, failure: None })
    }

    /// Results of this number of operations, all 0 until they are set.
    pub(crate) fn of_len(operations: usize) -> PyResult<Outcome> {
        let mut outcome = Outcome::with_capacity(operations)?;
        outcome.counts.resize(operations, 0);
        Ok(outcome)
    }

    /// Sets the results from an operation on.
    pub(crate) fn set(&mut self, start: usize, results: &Results) {
        for (at, result) in (start..).zip(results.iter()) {
            self.counts[at] = match result {
                Ok(count) => count as i64,
                Err(e) => {
                    let errno = errno_of(&e);
                    self.note_failure(at, e);
                    -i64::from(errno)
                }
            };
        }
    }

    /// Sets the results of parts, which are at these places.
    pub(crate) fn place(&mut self, parts: &mut Outcome, places: &[(usize, usize)]) {
        let failure = parts.failure.take();
        let mut done = 0;
        for &(start, len) in places {
            self.counts[start..start + len].copy_from_slice(&parts.counts[done..done + len]);
            done += len;
        }
        if let Some((at, error)) = failure {
            let mut left = at;
            let place = places.iter().find(|&&(_, len)| {
                let is_here = left < len;
                left -= if is_here { 0 } else { len };
                is_here
            });
            self.note_failure(place.expect("within the parts").0 + left, error);
        }
    }

    /// Keeps the failure of the first operation.
    fn note_failure(&mut self, at: usize, error: io::Error) {
        if self.failure.as_ref().is_none_or(|(first, _)| at < *first) {
            self.failure = Some((at, error));
        }
    }

    fn add(&mut self, results: Results) {
        results.iter().for_each(|result| self.push(result));
    }

    #[inline]
    fn push(&mut self, result: io::Result<usize>) {
        match result {
            Ok(count) => self.counts.push(count as i64),
            Err(e) => self.push_error(e),
        }
    }

    #[cold]
    fn push_error(&mut self, error: io::Error) {
        let at = self.counts.len();
        self.counts.push(-i64::from(errno_of(&error)));
        self.failure.get_or_insert((at, error));
    }
}

/// Returns the `errno` of an error, or that of its source or kind: an error with a longer text may
/// have the kernel's error as its source.
pub(crate) fn errno_of(error: &io::Error) -> i32 {
    let source = || error.get_ref()?.source()?.downcast_ref::<io::Error>()?.raw_os_error();
    let of_kind = || match error.kind() {
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    };
    error.raw_os_error().or_else(source).unwrap_or_else(of_kind)
}
