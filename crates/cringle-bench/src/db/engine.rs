//! The storage engine: a transaction as plain code, which calls the buffer pool, and the eviction
//! of dirty pages. A [`Platform`] performs the I/O and the waits. The engine is the same for every
//! rung but tokio's, whose functions are `async`.
//!
//! A page is used only while the pool is locked, and nothing waits then. So a page that was found
//! cannot be evicted before it is used, and needs no pin.

use super::Job;
use super::pool::{Counts, Found, Pool, Victim};
use super::tree::{self, PAGE_BYTES, Tree};
use super::wal::{NO_RECORD, Wal};
use super::workload::{Update, Workload};
use crate::meter::GAVE_UP;
use std::cell::{RefCell, RefMut};
use std::fs::File;
use std::io;
use std::ops::DerefMut;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What a rung provides: reads and writes of pages, and a way to wait.
pub(super) trait Platform {
    /// The memory of a page.
    type Page: Bytes;
    /// Wakes the caller of [`wait`](Self::wait).
    type Token;
    /// A `RefCell`, or a `Mutex` if there are threads.
    type Cell<T>: Guarded<T>;

    fn read(&self, number: u32, page: &mut Self::Page) -> io::Result<()>;

    fn write(&self, pages: &[(u32, &Self::Page)]) -> io::Result<()>;

    /// Returns a token that wakes the calling thread or fiber.
    fn token(&self) -> Self::Token;

    /// Waits for the token of the caller. May return early.
    fn wait(&self);

    fn wake(&self, token: Self::Token);
}

/// Memory whose bytes the engine reads and changes.
pub(super) trait Bytes {
    fn bytes(&mut self) -> &mut [u8];
}

impl Bytes for &mut [u8] {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }
}

/// Exclusive access to a value.
pub(super) trait Guarded<T> {
    type Guard<'a>: DerefMut<Target = T>
    where
        Self: 'a;

    fn new(value: T) -> Self;

    /// Waits until no other thread has access.
    fn lock(&self) -> Self::Guard<'_>;

    /// Returns `None` if there is access already.
    fn try_lock(&self) -> Option<Self::Guard<'_>>;
}

impl<T> Guarded<T> for RefCell<T> {
    type Guard<'a>
        = RefMut<'a, T>
    where
        T: 'a;

    fn new(value: T) -> RefCell<T> {
        RefCell::new(value)
    }

    fn lock(&self) -> RefMut<'_, T> {
        self.borrow_mut()
    }

    fn try_lock(&self) -> Option<RefMut<'_, T>> {
        self.try_borrow_mut().ok()
    }
}

impl<T> Guarded<T> for Mutex<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Mutex<T> {
        Mutex::new(value)
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        Mutex::lock(self).unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        Mutex::try_lock(self).ok()
    }
}

/// Who makes frames free, and how many at a time.
#[derive(Clone, Copy)]
pub(super) enum Eviction {
    /// The transaction that finds no free frame.
    ByTransactions { batch: usize },
    /// Fibers that do nothing else, before the last frame is taken.
    ByEvictors { batch: usize, evictors: usize },
}

impl Eviction {
    pub(super) fn low_mark(self) -> usize {
        match self {
            Eviction::ByTransactions { .. } => 0,
            Eviction::ByEvictors { batch, evictors } => batch * evictors,
        }
    }
}

type PoolCell<P> = <P as Platform>::Cell<Pool<<P as Platform>::Token>>;
type PoolGuard<'a, P> = <PoolCell<P> as Guarded<Pool<<P as Platform>::Token>>>::Guard<'a>;
type PageGuard<'a, P> =
    <<P as Platform>::Cell<<P as Platform>::Page> as Guarded<<P as Platform>::Page>>::Guard<'a>;

pub(super) struct Engine<'j, P: Platform> {
    tree: &'j Tree,
    workload: &'j Workload,
    wal: Wal,
    platform: P,
    pool: PoolCell<P>,
    pages: Vec<P::Cell<P::Page>>,
    eviction: Eviction,
    /// The number of the next transaction.
    next: AtomicUsize,
}

impl<'j, P: Platform> Engine<'j, P> {
    /// Creates an engine whose frames are full of dirty pages, as after a long run.
    pub(super) fn new(
        job: &'j Job,
        platform: P,
        pages: impl Iterator<Item = P::Page>,
        eviction: Eviction,
    ) -> io::Result<Engine<'j, P>> {
        let tree = &job.tree;
        let mut pool = Pool::new(tree.pages(), job.frames, eviction.low_mark());
        let mut cells = Vec::with_capacity(job.frames);
        for (mut page, number) in pages.zip(job.first_pages()) {
            tree.fill(number, page.bytes());
            let frame = pool.fill(number);
            debug_assert_eq!(frame, Some(cells.len() as u32));
            cells.push(<P::Cell<P::Page> as Guarded<P::Page>>::new(page));
        }
        pool.reset_counts();
        Ok(Engine {
            tree,
            workload: &job.workload,
            wal: Wal::begin(job)?,
            platform,
            pool: Guarded::new(pool),
            pages: cells,
            eviction,
            next: AtomicUsize::new(0),
        })
    }

    pub(super) fn platform(&self) -> &P {
        &self.platform
    }

    /// Performs transactions until none is left. Returns the time of each, in nanoseconds.
    pub(super) fn work(&self) -> io::Result<Vec<u64>> {
        let mut latencies = Vec::new();
        while let Some(update) = self.workload.get(self.next.fetch_add(1, Relaxed)) {
            let started = Instant::now();
            self.transact(update).inspect_err(|_| self.close())?;
            latencies.push(started.elapsed().as_nanos() as u64);
        }
        Ok(latencies)
    }

    /// Finds the row from the root downwards, updates it, and waits until the log has the change.
    fn transact(&self, update: Update) -> io::Result<()> {
        let mut page = self.tree.root();
        for _ in 0..self.tree.inner_levels() {
            page = self.with_page(page, |bytes| Ok((tree::child(bytes, update.key), None)))?;
        }
        let record = self.with_page(page, |bytes| {
            let value = tree::add(bytes, update.key, update.amount);
            let value = value.ok_or_else(|| missing_key(page, &update))?;
            let record = self.wal.record(update.key, value)?;
            Ok((record, Some(record)))
        })?;
        self.wal.wait(record)
    }

    /// Calls `f` with the bytes of a page, which is loaded first if it is not in the pool. `f` also
    /// returns the record of its change, if it has changed the page.
    fn with_page<R>(
        &self,
        page: u32,
        f: impl FnOnce(&mut [u8]) -> io::Result<(R, Option<u64>)>,
    ) -> io::Result<R> {
        let mut was_promised_a_frame = false;
        loop {
            let mut pool = self.pool.lock();
            let found = pool.find(page);
            if pool.is_closed() {
                return Err(io::Error::other(GAVE_UP));
            }
            if found != Found::Absent && std::mem::take(&mut was_promised_a_frame) {
                pool.pass_on().into_iter().for_each(|token| self.platform.wake(token));
            }
            match found {
                Found::Resident(frame) => {
                    let mut memory = self.memory(frame)?;
                    let bytes = memory.bytes();
                    check_number(page, bytes)?;
                    let (result, change) = f(bytes)?;
                    if let Some(record) = change {
                        pool.mark_dirty(frame, record);
                    }
                    return Ok(result);
                }
                Found::Busy(frame) => {
                    pool.wait_for_page(frame, self.platform.token());
                    drop(pool);
                    self.platform.wait();
                }
                Found::Absent => match pool.take(page) {
                    Some(frame) => {
                        let evictor = pool.evictor();
                        drop(pool);
                        evictor.into_iter().for_each(|token| self.platform.wake(token));
                        self.load(page, frame)?;
                    }
                    None => was_promised_a_frame = self.make_room(pool)?,
                },
            }
        }
    }

    fn load(&self, page: u32, frame: u32) -> io::Result<()> {
        let memory = self.memory(frame);
        let result = memory.and_then(|mut memory| self.platform.read(page, &mut memory));
        let mut woken = Vec::new();
        let mut pool = self.pool.lock();
        match &result {
            Ok(()) => pool.loaded(frame, &mut woken),
            Err(_) => pool.release(frame, &mut woken),
        }
        drop(pool);
        self.wake_all(woken);
        result
    }

    /// Evicts pages, or waits until evictors have. Returns whether it has waited.
    fn make_room(&self, mut pool: PoolGuard<'_, P>) -> io::Result<bool> {
        match self.eviction {
            Eviction::ByTransactions { batch } => {
                drop(pool);
                self.evict(batch).map(|()| false)
            }
            Eviction::ByEvictors { .. } => {
                let evictor = pool.evictor();
                pool.wait_for_frame(self.platform.token());
                drop(pool);
                evictor.into_iter().for_each(|token| self.platform.wake(token));
                self.platform.wait();
                Ok(true)
            }
        }
    }

    /// Makes up to `batch` frames free. The dirty ones are written together.
    fn evict(&self, batch: usize) -> io::Result<()> {
        let mut woken = Vec::new();
        let victims = self.pool.lock().victims(batch, &mut woken);
        self.wake_all(woken.drain(..));
        if victims.is_empty() {
            return Ok(());
        }
        let result = self.write(&victims);
        self.pool.lock().written(&victims, &mut woken);
        self.wake_all(woken);
        result
    }

    /// Writes pages, after the records of their changes are durable.
    fn write(&self, victims: &[Victim]) -> io::Result<()> {
        let newest = victims.iter().map(|victim| victim.record).max();
        self.wal.wait(newest.unwrap_or(NO_RECORD))?;
        let frames = victims.iter().map(|victim| self.memory(victim.frame));
        let frames: Vec<_> = frames.collect::<io::Result<_>>()?;
        let pages = victims.iter().zip(&frames).map(|(victim, page)| (victim.page, &**page));
        self.platform.write(&pages.collect::<Vec<_>>())
    }

    /// Returns the memory of a frame, which the pool has given to the caller alone. Fails if
    /// another transaction uses it nevertheless.
    fn memory(&self, frame: u32) -> io::Result<PageGuard<'_, P>> {
        let error = || io::Error::other(format!("frame {frame} is used by two transactions"));
        self.pages[frame as usize].try_lock().ok_or_else(error)
    }

    /// Evicts pages whenever few frames are free, until the engine is closed.
    pub(super) fn evict_in_background(&self) -> io::Result<()> {
        let Eviction::ByEvictors { batch, .. } = self.eviction else { return Ok(()) };
        loop {
            let mut pool = self.pool.lock();
            if pool.is_closed() {
                return Ok(());
            }
            if pool.is_low() {
                drop(pool);
                self.evict(batch).inspect_err(|_| self.close())?;
            } else {
                pool.wait_for_work(self.platform.token());
                drop(pool);
                self.platform.wait();
            }
        }
    }

    /// Ends the evictors, and after a failure the other transactions.
    pub(super) fn close(&self) {
        let mut woken = Vec::new();
        self.next.store(self.workload.len(), Relaxed);
        self.pool.lock().close(&mut woken);
        self.wake_all(woken);
    }

    fn wake_all(&self, tokens: impl IntoIterator<Item = P::Token>) {
        tokens.into_iter().for_each(|token| self.platform.wake(token));
    }

    pub(super) fn counts(&self) -> Counts {
        self.pool.lock().counts()
    }

    /// Writes every dirty page to `file`, which is not measured.
    pub(super) fn flush(&self, file: &File) -> io::Result<()> {
        for victim in self.pool.lock().clean_all() {
            let mut page = self.memory(victim.frame)?;
            file.write_all_at(page.bytes(), offset(victim.page))?;
        }
        Ok(())
    }
}

/// Returns where a page begins in the file.
pub(super) fn offset(page: u32) -> u64 {
    u64::from(page) * PAGE_BYTES as u64
}

/// Fails if the bytes are another page's.
pub(super) fn check_number(page: u32, bytes: &[u8]) -> io::Result<()> {
    let number = tree::number(bytes);
    if number == u64::from(page) {
        return Ok(());
    }
    Err(io::Error::other(format!("page {page} contains page {number}")))
}

pub(super) fn missing_key(page: u32, update: &Update) -> io::Error {
    io::Error::other(format!("page {page} does not contain the key {}", update.key))
}

/// Fails if a read or write has moved less than a page.
#[inline]
pub(super) fn whole(moved: usize, page: u32) -> io::Result<()> {
    if moved == PAGE_BYTES {
        return Ok(());
    }
    let text = format!("page {page}: {moved} of {PAGE_BYTES} bytes were moved");
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, text))
}

#[cfg(test)]
mod tests;
