//! `+fibers`: each transaction on a fiber. A transaction that reads a page suspends its fiber;
//! other fibers write back changed pages.
//!
//! The submission queue has one entry, so that each read and each write is submitted by a system
//! call of its own.

use super::{Outcome, collect, memory, outcome};
use crate::db::Job;
use crate::db::args::EVICTORS;
use crate::db::engine::{Engine, Eviction, Platform, offset, whole};
use crate::db::tree::PAGE_BYTES;
use crate::joined;
use crate::meter::Meter;
use cringle::block::Batch;
use cringle::fiber;
use cringle::fs::File;
use cringle::os::unix::fs::FileExt;
use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;

pub(super) fn run(job: &Job) -> io::Result<Outcome> {
    let runtime = cringle::Builder::new().workers(1).ring_entries(1);
    runtime.run(|| {
        let file = File::from(job.store.open()?);
        let plain = Plain { file: &file, spare: RefCell::default(), pages: PhantomData };
        with_fibers(job, plain, memory(job).chunks_mut(PAGE_BYTES))
    })?
}

/// Runs the transactions on fibers of this worker.
fn with_fibers<P: Platform<Token = fiber::Thread>>(
    job: &Job,
    platform: P,
    pages: impl Iterator<Item = P::Page>,
) -> io::Result<Outcome> {
    let eviction = Eviction::ByEvictors { batch: job.evict_batch, evictors: EVICTORS };
    let engine = &Engine::new(job, platform, pages, eviction);
    let (latencies, usage, calls) = fiber::scope(|scope| {
        let start = |_| {
            scope.spawn_local(|| {
                // Continues when the clock runs.
                fiber::yield_now();
                engine.work()
            })
        };
        let transactions: Vec<_> = (0..job.fibers).map(start).collect();
        let evict = |_| {
            scope.spawn_local(|| {
                fiber::yield_now();
                engine.evict_in_background()
            })
        };
        let evictors: Vec<_> = (0..EVICTORS).map(evict).collect();
        // Each fiber is now suspended in its own yield, with its stack touched.
        fiber::yield_now();
        let (enters, meter) = (enters(), Meter::start());
        let latencies = collect(transactions.into_iter().map(|fiber| joined(fiber.join())));
        let (usage, calls) = (meter.stop(), self::enters() - enters);
        engine.close();
        let evicted = collect(evictors.into_iter().map(|fiber| joined(fiber.join())));
        (evicted.and(latencies), usage, calls)
    });
    outcome(job, engine, usage, latencies, Some(calls))
}

/// Returns how often the worker has entered the kernel.
fn enters() -> u64 {
    cringle::runtime::stats().map_or(0, |stats| stats.total().enters)
}

struct Plain<'a> {
    file: &'a File,
    /// Batches without operations, for their memory.
    spare: RefCell<Vec<Batch<'static>>>,
    pages: PhantomData<&'a mut [u8]>,
}

impl<'a> Platform for Plain<'a> {
    type Page = &'a mut [u8];
    type Token = fiber::Thread;
    type Cell<T> = RefCell<T>;

    fn bytes<'p>(page: &'p mut &'a mut [u8]) -> &'p mut [u8] {
        page
    }

    fn read(&self, number: u32, page: &mut &'a mut [u8]) -> io::Result<()> {
        whole(self.file.read_at(page, offset(number))?, number)
    }

    fn write(&self, pages: &[(u32, &&'a mut [u8])]) -> io::Result<()> {
        let mut batch: Batch<'_> = self.spare.borrow_mut().pop().unwrap_or_default();
        for (number, page) in pages {
            batch.write(self.file, page, offset(*number));
        }
        let results = batch.submit();
        let check = |((number, _), moved): (&(u32, _), io::Result<usize>)| whole(moved?, *number);
        let checked = pages.iter().zip(results.iter()).try_for_each(check);
        self.spare.borrow_mut().push(results.recycle());
        checked
    }

    fn token(&self) -> fiber::Thread {
        fiber::current()
    }

    fn wait(&self) {
        fiber::park();
    }

    fn wake(&self, token: fiber::Thread) {
        token.unpark();
    }
}
