//! `+fibers`, `+batch` and `+registered`: each transaction on a fiber. A transaction that reads a
//! page suspends its fiber; other fibers write back changed pages.

use super::{Outcome, memory, outcome};
use crate::db::Job;
use crate::db::args::EVICTORS;
use crate::db::engine::{Bytes, Engine, Eviction, Platform, offset, whole};
use crate::db::tree::PAGE_BYTES;
use crate::joined;
use crate::meter::{Meter, collect};
use cringle::block::{Batch, FixedBuf, FixedBufs, FixedFile};
use cringle::fiber;
use cringle::fs::File;
use cringle::os::unix::fs::FileExt;
use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;

/// With a queue of one entry, each read and each write is submitted by a system call of its own.
pub(super) const ONE_BY_ONE: u32 = 1;
/// The default of the runtime.
pub(super) const BATCHED: u32 = 256;

pub(super) fn plain(job: &Job, queue_entries: u32) -> io::Result<Outcome> {
    let runtime = cringle::Builder::new().workers(1).ring_entries(queue_entries);
    runtime.run(|| {
        let file = File::from(job.store.open()?);
        let plain = Plain { file: &file, spare: Spare::default(), pages: PhantomData };
        with_fibers(job, plain, memory(job).chunks_mut(PAGE_BYTES))
    })?
}

pub(super) fn registered(job: &Job) -> io::Result<Outcome> {
    cringle::Builder::new().workers(1).run(|| {
        let file = File::from(job.store.open()?);
        let file = FixedFile::register(&file)?;
        let mut pages = FixedBufs::new(job.frames, PAGE_BYTES)?;
        let platform = Registered { file: &file, spare: Spare::default(), pages: PhantomData };
        with_fibers(job, platform, pages.iter_mut())
    })?
}

/// Runs the transactions on fibers of this worker.
fn with_fibers<P: Platform<Token = fiber::Thread>>(
    job: &Job,
    platform: P,
    pages: impl Iterator<Item = P::Page>,
) -> io::Result<Outcome> {
    let eviction = Eviction::ByEvictors { batch: job.evict_batch, evictors: EVICTORS };
    crate::describe_runtime();
    let engine = &Engine::new(job, platform, pages, eviction)?;
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

/// Batches without operations, for their memory.
#[derive(Default)]
struct Spare(RefCell<Vec<Batch<'static>>>);

impl Spare {
    fn take<'b>(&self) -> Batch<'b> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Performs a batch with one operation for each of the pages. Only the calling fiber waits.
    fn submit(&self, batch: Batch<'_>, mut pages: impl Iterator<Item = u32>) -> io::Result<()> {
        let results = batch.submit();
        let mut moved = results.iter();
        let checked = pages.try_for_each(|page| {
            let moved = moved.next().expect("a result for each operation");
            whole(moved?, page)
        });
        drop(moved);
        self.0.borrow_mut().push(results.recycle());
        checked
    }
}

struct Plain<'a> {
    file: &'a File,
    spare: Spare,
    pages: PhantomData<&'a mut [u8]>,
}

impl<'a> Platform for Plain<'a> {
    type Page = &'a mut [u8];
    type Token = fiber::Thread;
    type Cell<T> = RefCell<T>;

    fn read(&self, number: u32, page: &mut &'a mut [u8]) -> io::Result<()> {
        whole(self.file.read_at(page, offset(number))?, number)
    }

    fn write(&self, pages: &[(u32, &&'a mut [u8])]) -> io::Result<()> {
        let mut batch = self.spare.take();
        for (number, page) in pages {
            batch.write(self.file, page, offset(*number));
        }
        self.spare.submit(batch, pages.iter().map(|(number, _)| *number))
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

impl Bytes for &mut FixedBuf {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }
}

struct Registered<'a> {
    file: &'a FixedFile,
    spare: Spare,
    pages: PhantomData<&'a mut FixedBuf>,
}

impl<'a> Platform for Registered<'a> {
    type Page = &'a mut FixedBuf;
    type Token = fiber::Thread;
    type Cell<T> = RefCell<T>;

    fn read(&self, number: u32, page: &mut &'a mut FixedBuf) -> io::Result<()> {
        let mut batch = self.spare.take();
        batch.read_fixed(self.file, page, offset(number));
        self.spare.submit(batch, std::iter::once(number))
    }

    fn write(&self, pages: &[(u32, &&'a mut FixedBuf)]) -> io::Result<()> {
        let mut batch = self.spare.take();
        for (number, page) in pages {
            batch.write_fixed(self.file, page, offset(*number));
        }
        self.spare.submit(batch, pages.iter().map(|(number, _)| *number))
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
