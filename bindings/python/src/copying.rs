//! Large batches of a mapped file: the calling thread and a worker copy parts of it at once.
//!
//! Both take parts from one queue until it is empty, so neither waits for the other to begin. A
//! part of which a page is missing goes to a [`Job`], whose ring reads it.

use crate::engine::{Engine, interruptible};
use crate::errors;
use crate::job::{Job, Outcome};
use crate::plan::{Part, Plan};
use crate::sabotage;
use cringle::block::Results;
use pyo3::prelude::*;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The number of parts. More would cost more than they balance.
const PARTS: usize = 16;
/// But a part has at most this number of bytes, unless it is one operation: the calling thread
/// looks for signals between parts.
const MAX_PART_BYTES: usize = 16 << 20;
/// The fewest bytes for which a worker is woken, which takes about as long as the copy of 100 KiB.
const MIN_BYTES: usize = 1 << 20;

/// Returns the operations of one part.
pub(crate) fn part_len(operations: usize, bytes: usize) -> usize {
    let parts = if bytes < MIN_BYTES { 1 } else { PARTS.max(bytes.div_ceil(MAX_PART_BYTES)) };
    operations.div_ceil(parts).max(1)
}

struct Copying {
    shared: Mutex<Shared>,
    idle: Condvar,
}

struct Shared {
    /// Those of which pages are missing. Dropped before the plan's files, to which they refer.
    missed: Vec<Part>,
    /// P1. It has the memory and the files, until no part is being copied.
    plan: Plan,
    is_worker_busy: bool,
    /// The worker has panicked, and results are missing.
    is_broken: bool,
    outcome: Outcome,
}

/// The worker performs a part. Its end is seen also if it panics.
struct Busy<'a> {
    copying: &'a Copying,
    is_done: bool,
}

impl Busy<'_> {
    fn end(mut self, start: usize, results: &Results) {
        self.copying.shared().outcome.set(start, results);
        self.is_done = true;
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut shared = self.copying.shared();
        shared.is_worker_busy = false;
        shared.is_broken |= !self.is_done;
        // The caller waits when no part is left. (A notification is a system call.)
        let is_awaited = !self.is_done || shared.plan.parts.is_empty();
        drop(shared);
        if is_awaited {
            self.copying.idle.notify_all();
        }
    }
}

/// Performs a plan of reads of a mapped file.
pub(crate) fn perform(py: Python<'_>, engine: &Engine, plan: Plan) -> PyResult<Outcome> {
    let outcome = Outcome::of_len(plan.len())?;
    let has_parts = plan.parts.len() > 1;
    let (missed, is_worker_busy, is_broken) = (Vec::new(), false, false);
    let shared = Mutex::new(Shared { missed, plan, is_worker_busy, is_broken, outcome });
    let copying = Arc::new(Copying { shared, idle: Condvar::new() });
    if has_parts {
        let helped = Arc::clone(&copying);
        engine.run(move || helped.help())?;
    }
    let copied = interruptible(py, |limit| copying.copy(limit).then_some(()));
    let ended = copied.and_then(|()| match has_parts {
        true => interruptible(py, |limit| copying.wait_for_worker(limit).then_some(())),
        false => Ok(()),
    });
    if let Err(interrupt) = ended {
        // The worker ends its part, and keeps the memory until then.
        copying.shared().plan.parts.clear();
        return Err(interrupt);
    }
    let mut shared = copying.shared();
    let mut missed = std::mem::take(&mut shared.missed);
    missed.reverse();
    let mut outcome = std::mem::take(&mut shared.outcome);
    let mut plan = std::mem::replace(&mut shared.plan, Plan::empty());
    let is_broken = shared.is_broken;
    drop(shared);
    if is_broken {
        plan.memory.drain(..).for_each(|memory| memory.release(py));
        return Err(errors::of_bug());
    }
    if missed.is_empty() {
        plan.memory.drain(..).for_each(|memory| memory.release(py));
        return Ok(outcome);
    }
    let places: Vec<_> = missed.iter().map(|part| (part.start, part.batch.len())).collect();
    plan.parts = missed;
    let mut read = Job::start(engine, plan)?.wait(py)?;
    outcome.place(&mut read, &places);
    Ok(outcome)
}

impl Copying {
    /// Copies parts on the calling thread, and returns `true` when none is left, or `false` when
    /// the time has passed.
    fn copy(&self, limit: Duration) -> bool {
        let begun = Instant::now();
        loop {
            // The worker takes from the other end, so each thread's pages are neighbours.
            let Some(Part { start, batch }) = self.shared().plan.parts.pop() else {
                return true;
            };
            match batch.try_submit() {
                Ok(results) => self.shared().outcome.set(start, &results),
                Err(batch) => self.shared().missed.push(Part { start, batch }),
            }
            if begun.elapsed() >= limit {
                return false;
            }
        }
    }

    /// Performs parts on a worker.
    fn help(&self) {
        while let Some((Part { start, batch }, busy)) = self.next_of_worker() {
            sabotage::at("copies");
            busy.end(start, &batch.submit());
        }
    }

    fn next_of_worker(&self) -> Option<(Part, Busy<'_>)> {
        let mut shared = self.shared();
        if shared.plan.parts.is_empty() {
            return None;
        }
        shared.is_worker_busy = true;
        let part = shared.plan.parts.remove(0);
        drop(shared);
        Some((part, Busy { copying: self, is_done: false }))
    }

    fn wait_for_worker(&self, limit: Duration) -> bool {
        let shared = self.shared();
        let waited = self.idle.wait_timeout_while(shared, limit, |shared| shared.is_worker_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_worker_busy
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
