//! `tokio`: a task for each transaction at once, on a runtime with one thread. tokio's own files
//! have no direct reads, so a task passes a closure to the blocking pool, with the frame's memory.
//! One closure writes a changed page back and reads the other page into its frame.
//!
//! The same engine with `async` functions. The pool of pages is the same.

use super::Outcome;
use crate::db::engine::{check_number, missing_key, offset, whole};
use crate::db::pool::{Found, Pool};
use crate::db::tree::{self, PAGE_BYTES};
use crate::db::wal::{NO_RECORD, Wal};
use crate::db::workload::Update;
use crate::db::{Job, RungSample};
use crate::latency::Latencies;
use crate::meter::{GAVE_UP, Meter, collect};
use cringle::block::AlignedBuf;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_blocking, spawn_local};

pub(super) fn run(job: &Arc<Job>) -> io::Result<Outcome> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.max_blocking_threads(job.fibers).build()?;
    let engine = Rc::new(Engine::new(Arc::clone(job))?);
    LocalSet::new().block_on(&runtime, async {
        let meter = Meter::start();
        let start = |_| spawn_local(Rc::clone(&engine).work());
        let tasks: Vec<_> = (0..job.fibers).map(start).collect();
        let mut ended = Vec::new();
        for task in tasks {
            ended.push(task.await.unwrap_or_else(|error| Err(io::Error::other(error))));
        }
        let usage = meter.stop();
        let mut latencies = Latencies::new();
        collect(ended)?.into_iter().for_each(|some| latencies.record(some));
        if !job.durable {
            engine.flush()?;
        }
        Ok((RungSample { usage, counts: engine.pool.borrow().counts(), calls: None }, latencies))
    })
}

struct Engine {
    job: Arc<Job>,
    file: Arc<File>,
    wal: Arc<Wal>,
    pool: RefCell<Pool<oneshot::Sender<()>>>,
    /// The memory of each frame, or `None` while a closure has it.
    pages: Vec<Cell<Option<AlignedBuf>>>,
    /// The number of the next transaction.
    next: Cell<usize>,
}

impl Engine {
    fn new(job: Arc<Job>) -> io::Result<Engine> {
        let mut pool = Pool::new(job.tree.pages(), job.frames, 0);
        let mut pages = Vec::with_capacity(job.frames);
        for number in job.first_pages() {
            let mut page = AlignedBuf::new(PAGE_BYTES);
            job.tree.fill(number, &mut page);
            pool.fill(number);
            pages.push(Cell::new(Some(page)));
        }
        pool.reset_counts();
        let file = Arc::new(job.store.open()?);
        let wal = Arc::new(Wal::begin(&job)?);
        Ok(Engine { job, file, wal, pool: RefCell::new(pool), pages, next: Cell::new(0) })
    }

    async fn work(self: Rc<Engine>) -> io::Result<Vec<u64>> {
        let mut latencies = Vec::new();
        while let Some(update) = self.job.workload.get(self.next.replace(self.next.get() + 1)) {
            let started = Instant::now();
            if let Err(error) = self.transact(update).await {
                self.close();
                return Err(error);
            }
            latencies.push(started.elapsed().as_nanos() as u64);
        }
        Ok(latencies)
    }

    async fn transact(&self, update: Update) -> io::Result<()> {
        let mut page = self.job.tree.root();
        for _ in 0..self.job.tree.inner_levels() {
            let child = |bytes: &mut [u8]| Ok((tree::child(bytes, update.key), None));
            page = self.with_page(page, child).await?;
        }
        let change = |bytes: &mut [u8]| {
            let value = tree::add(bytes, update.key, update.amount);
            let value = value.ok_or_else(|| missing_key(page, &update))?;
            let record = self.wal.record(update.key, value)?;
            Ok((record, Some(record)))
        };
        let record = self.with_page(page, change).await?;
        if record == NO_RECORD {
            return Ok(());
        }
        let wal = Arc::clone(&self.wal);
        spawn_blocking(move || wal.wait(record)).await.map_err(io::Error::other)?
    }

    async fn with_page<R>(
        &self,
        page: u32,
        f: impl FnOnce(&mut [u8]) -> io::Result<(R, Option<u64>)>,
    ) -> io::Result<R> {
        loop {
            let found = self.pool.borrow_mut().find(page);
            if self.pool.borrow().is_closed() {
                return Err(io::Error::other(GAVE_UP));
            }
            match found {
                Found::Resident(frame) => {
                    let cell = &self.pages[frame as usize];
                    let mut memory = cell.take().ok_or_else(busy)?;
                    let result = check_number(page, &memory).and_then(|()| f(&mut memory));
                    cell.set(Some(memory));
                    let (result, change) = result?;
                    if let Some(record) = change {
                        self.pool.borrow_mut().mark_dirty(frame, record);
                    }
                    return Ok(result);
                }
                Found::Busy(frame) => {
                    let (waiter, woken) = oneshot::channel();
                    self.pool.borrow_mut().wait_for_page(frame, waiter);
                    // An error means that the pool was dropped, which this borrow excludes.
                    let _ = woken.await;
                }
                Found::Absent => self.exchange(page).await?,
            }
        }
    }

    /// Loads a page into the frame of another one, which is written back if it was changed.
    async fn exchange(&self, page: u32) -> io::Result<()> {
        let Some(exchange) = self.pool.borrow_mut().exchange(page) else {
            // Every frame is in use by another task.
            tokio::task::yield_now().await;
            return Ok(());
        };
        let cell = &self.pages[exchange.frame as usize];
        let (mut memory, file) = (cell.take().ok_or_else(busy)?, Arc::clone(&self.file));
        let wal = Arc::clone(&self.wal);
        let transfer = spawn_blocking(move || {
            let written = exchange.dirty.map_or(Ok(()), |old| {
                wal.wait(exchange.record)?;
                file.write_at(&memory, offset(old)).and_then(|moved| whole(moved, old))
            });
            let read = written.and_then(|()| file.read_at(&mut memory, offset(page)));
            (memory, read.and_then(|moved| whole(moved, page)))
        });
        let (memory, result) = transfer.await.map_err(io::Error::other)?;
        cell.set(Some(memory));
        let mut woken = Vec::new();
        self.pool.borrow_mut().exchanged(exchange.frame, page, result.is_ok(), &mut woken);
        wake(woken);
        result
    }

    fn close(&self) {
        let mut woken = Vec::new();
        self.next.set(self.job.workload.len());
        self.pool.borrow_mut().close(&mut woken);
        wake(woken);
    }

    /// Writes every dirty page, which is not measured.
    fn flush(&self) -> io::Result<()> {
        let file = self.job.store.cached();
        for victim in self.pool.borrow_mut().clean_all() {
            let memory = self.pages[victim.frame as usize].take().ok_or_else(busy)?;
            file.write_all_at(&memory, offset(victim.page))?;
        }
        file.sync_data()
    }
}

fn wake(waiters: Vec<oneshot::Sender<()>>) {
    for waiter in waiters {
        // An error means that the task has ended.
        let _ = waiter.send(());
    }
}

fn busy() -> io::Error {
    io::Error::other("a resident frame has no memory")
}
