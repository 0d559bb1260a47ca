//! Which pages of a mapped file are in memory.
//!
//! A bit for each page says that the page was in memory, and in the process's page table, at the
//! last *look*. A copy from such a page costs no system call and no page fault. Looks are made on
//! two threads for all files, in slices of [`SLICE`], chunk by chunk:
//!
//! 1. `cachestat` counts the pages of a chunk in the page cache, and the look skips a chunk with
//!    few. (For 2 GiB without a page in memory it takes 0.2 ms, `mincore` 7 ms.) So random reads of
//!    a large file that is mostly not in memory cause no expensive looks.
//! 2. `mincore` reports which pages are in memory. (For 2 GiB in memory it takes 1.7 ms if they are
//!    in the page table, 60 ms if not.)
//! 3. `MADV_POPULATE_READ` enters the pages that are new since the last look into the page table.
//!    A page fault takes longer than a read through the ring.
//!
//! # How old the bits may be
//!
//! No call can tell, for less than the cost of a read, that a page is in memory now. So a bit is
//! used for a limited time after the look at its chunk: twice the time between two looks. That time
//! is [`BETWEEN_LOOKS`], or [`COST_RATIO`] times the processor time of the last look if that is
//! more: looks take at most 2 % of a processor, and entering new pages at most 10 %. A page that
//! the kernel evicts within that time is a page fault of the worker, as in any program that maps
//! files. Pages in a page table are evicted only if memory runs short: `posix_fadvise` and
//! `drop_caches` skip them.
//!
//! The bits are hints: a wrong one costs time, and no correctness. So relaxed accesses suffice.

use cringle_sys::lock::Mutex;
use cringle_sys::mapping::{Mapping, cached_pages, page_bytes};
use cringle_sys::{self as sys, mapping};
use std::alloc::{self, Layout};
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The number of pages in a chunk, which is looked at in one step.
const CHUNK_PAGES: usize = 512;
/// The longest time that a look takes without a pause.
pub(super) const SLICE: Duration = Duration::from_millis(20);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
const COST_RATIO: u32 = 50;
/// The same for the processor time of entering new pages, which is spent once for each.
const ENTRY_COST_RATIO: u32 = 10;
/// A chunk of which less than this part is in memory is not copied from.
const SPARSE: usize = 8;
/// The time after which a look that has not ended is considered lost: its thread is in the parent
/// of a `fork`.
const LOST_AFTER_NS: u64 = 10_000_000_000;
/// The distance from the end of a file to a page that no page cache has: see [`is_reported`].
const FAR_BYTES: u64 = 1 << 30;

pub(super) struct Residency {
    mapping: Mapping,
    page_bytes: usize,
    /// A bit for each page.
    pages: Box<[AtomicU64]>,
    /// When each chunk was looked at, by [`sys::coarse_ns`]; 0 for never.
    looked_at: Box<[AtomicU64]>,
    /// How long a look is used.
    trust_ns: AtomicU64,
    next_look: AtomicU64,
    progress: Mutex<Progress>,
}

/// The progress of a look.
#[derive(Default)]
struct Progress {
    next_chunk: usize,
    cost: Cost,
}

/// The processor time of a look.
#[derive(Clone, Copy, Default)]
struct Cost {
    look: Duration,
    entries: Duration,
}

impl Cost {
    /// Returns the time until the next look.
    fn pause(self) -> Duration {
        let pause = COST_RATIO * self.look;
        BETWEEN_LOOKS.max(pause).max(ENTRY_COST_RATIO * self.entries)
    }
}

/// How a slice of a look has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Complete,
    Unfinished,
    /// The kernel does not report the residency to this process any more.
    Unreported,
}

impl Residency {
    pub(super) fn new(mapping: Mapping) -> Residency {
        let page_bytes = page_bytes();
        let pages = mapping.bytes().div_ceil(page_bytes);
        Residency {
            mapping,
            page_bytes,
            pages: zeros(pages.div_ceil(u64::BITS as usize)),
            looked_at: zeros(pages.div_ceil(CHUNK_PAGES)),
            trust_ns: AtomicU64::new(2 * BETWEEN_LOOKS.as_nanos() as u64),
            next_look: AtomicU64::new(0),
            progress: Mutex::default(),
        }
    }

    /// Whether all bytes of a range were in memory lately.
    #[inline]
    pub(super) fn has(&self, range: &Range<u64>, now: u64) -> bool {
        if range.end > self.mapping.bytes() as u64 {
            return false;
        }
        let shift = self.page_bytes.trailing_zeros();
        let (first, last) = ((range.start >> shift) as usize, ((range.end - 1) >> shift) as usize);
        let trust_ns = self.trust_ns.load(Relaxed);
        let is_recent = |looked_at: &AtomicU64| {
            let at = looked_at.load(Relaxed);
            at != 0 && now.saturating_sub(at) <= trust_ns
        };
        self.looked_at[first / CHUNK_PAGES..=last / CHUNK_PAGES].iter().all(is_recent)
            && (first..=last)
                .all(|page| self.pages[page / 64].load(Relaxed) >> (page % 64) & 1 == 1)
    }

    /// Copies a range that is [mapped](Self::has). Returns whether all of it was copied.
    ///
    /// # Safety
    ///
    /// `to` is valid for a write of the range's length, or is a writable mapping of a file.
    #[inline]
    pub(super) unsafe fn copy(&self, range: Range<u64>, to: *mut u8) -> bool {
        let len = (range.end - range.start) as usize;
        // SAFETY: by the contract.
        if unsafe { self.mapping.copy(range.start as usize, to, len) } == len {
            return true;
        }
        self.distrust(range);
        false
    }

    /// Prepares a copy from an offset, if its page was in memory lately.
    #[inline]
    pub(super) fn prefetch(&self, offset: u64, now: u64) {
        if offset < self.mapping.bytes() as u64 && self.has(&(offset..offset + 1), now) {
            self.mapping.prefetch(offset as usize);
        }
    }

    /// Forgets what is known of the chunks of a range, of which a page is invalid.
    #[cold]
    fn distrust(&self, range: Range<u64>) {
        let chunk = |offset: u64| offset as usize / self.page_bytes / CHUNK_PAGES;
        let chunks = &self.looked_at[chunk(range.start)..=chunk(range.end - 1)];
        chunks.iter().for_each(|at| at.store(0, Relaxed));
    }

    /// Forgets what is known of all pages.
    pub(super) fn forget(&self) {
        self.looked_at.iter().for_each(|at| at.store(0, Relaxed));
    }

    /// Returns the number of bytes that are known to be in memory.
    pub(super) fn resident_bytes(&self, now: u64) -> u64 {
        let trust_ns = self.trust_ns.load(Relaxed);
        let chunks = self.pages.chunks(CHUNK_PAGES / 64).zip(&self.looked_at);
        let pages: u64 = chunks
            .filter(|(_, at)| {
                let at = at.load(Relaxed);
                at != 0 && now.saturating_sub(at) <= trust_ns
            })
            .flat_map(|(words, _)| words)
            .map(|word| u64::from(word.load(Relaxed).count_ones()))
            .sum();
        pages * self.page_bytes as u64
    }

    /// Whether a look is due. The caller that gets `true` must look.
    #[inline]
    pub(super) fn is_due(&self, now: u64) -> bool {
        let next = self.next_look.load(Relaxed);
        now >= next
            && self.next_look.compare_exchange(next, now + LOST_AFTER_NS, Relaxed, Relaxed).is_ok()
    }

    /// Continues a look for about the time `limit`, unless another thread does, or `is_over`.
    pub(super) fn look(&self, fd: RawFd, limit: Duration, is_over: impl Fn() -> bool) -> Look {
        let Some(mut progress) = self.progress.try_lock() else { return Look::Unfinished };
        let (end, begin) = (sys::boot_ns() + limit.as_nanos() as u64, sys::thread_ran());
        let (size, mut entries) =
            (sys::fstat(fd).map_or(0, |stat| stat.st_size as u64), Duration::ZERO);
        if !is_reported(fd, size) {
            self.forget();
            return Look::Unreported;
        }
        while progress.next_chunk < self.looked_at.len() && !is_over() {
            entries += self.look_at(progress.next_chunk, fd, size);
            progress.next_chunk += 1;
            if sys::boot_ns() >= end {
                break;
            }
        }
        progress.cost.entries += entries;
        progress.cost.look += sys::thread_ran().saturating_sub(begin + entries);
        if progress.next_chunk < self.looked_at.len() {
            self.next_look.store(0, Relaxed);
            return Look::Unfinished;
        }
        let pause_ns = progress.cost.pause().as_nanos() as u64;
        *progress = Progress::default();
        self.trust_ns.store(2 * pause_ns, Relaxed);
        self.next_look.store(sys::coarse_ns() + pause_ns, Relaxed);
        Look::Complete
    }

    /// Begins a new look, and completes it.
    pub(super) fn look_at_all(&self, fd: RawFd) -> Look {
        *self.progress.lock() = Progress::default();
        loop {
            match self.look(fd, SLICE, || false) {
                // Another thread may be in its slice.
                Look::Unfinished => sys::yield_thread(),
                end => return end,
            }
        }
    }

    /// Looks at a chunk of a file of `size` bytes. Returns the processor time of entering its new
    /// pages into the page table.
    fn look_at(&self, chunk: usize, fd: RawFd, size: u64) -> Duration {
        let words = &self.pages[chunk * CHUNK_PAGES / 64..];
        let words = &words[..words.len().min(CHUNK_PAGES / 64)];
        let start = chunk * CHUNK_PAGES * self.page_bytes;
        // The last page of the file is not copied from if its end is beyond the file's.
        let whole = (size.min(self.mapping.bytes() as u64) as usize).saturating_sub(start);
        let count = (whole / self.page_bytes).min(CHUNK_PAGES);
        let mut resident = [0; CHUNK_PAGES];
        let resident = &mut resident[..count];
        let is_known = words.iter().any(|word| word.load(Relaxed) != 0);
        if !is_known && self.is_sparse(fd, start, count)
            || self.mapping.residency(start, resident).is_err()
            || resident.iter().filter(|page| **page & 1 == 1).count() < sparse(count)
        {
            resident.fill(0);
        }
        let entries = self.populate(start, words, resident);
        for (word, pages) in words.iter().zip(resident.chunks(64).chain(std::iter::repeat(&[][..])))
        {
            let bits = pages.iter().rev().fold(0, |bits, page| bits << 1 | u64::from(page & 1));
            // The words of pages that were never in memory take no memory either.
            if word.load(Relaxed) != bits {
                word.store(bits, Relaxed);
            }
        }
        self.looked_at[chunk].store(sys::coarse_ns().max(1), Relaxed);
        entries
    }

    /// Whether the kernel reports quickly that few pages from `start` are in memory.
    fn is_sparse(&self, fd: RawFd, start: usize, count: usize) -> bool {
        let bytes = (count * self.page_bytes) as u64;
        count == 0
            || cached_pages(fd, start as u64, bytes).is_some_and(|it| it < sparse(count) as u64)
    }

    /// Enters the pages that are in memory, and were not at the last look, into the page table.
    /// Marks those as absent for which it fails. Returns the processor time.
    fn populate(&self, start: usize, words: &[AtomicU64], resident: &mut [u8]) -> Duration {
        let is_known = |page: usize| words[page / 64].load(Relaxed) >> (page % 64) & 1 == 1;
        if (0..resident.len()).all(|page| resident[page] & 1 == 0 || is_known(page)) {
            return Duration::ZERO;
        }
        let (begin, mut page) = (sys::thread_ran(), 0);
        while page < resident.len() {
            let run = resident[page..].iter().take_while(|one| **one & 1 == 1).count();
            let run = page..page + run;
            page = run.end + 1;
            if run.clone().all(is_known) {
                continue;
            }
            let from = start + run.start * self.page_bytes;
            match self.mapping.populate(from, run.len() * self.page_bytes) {
                // A kernel without this advice: a copy makes a short page fault.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
                Err(_) => resident[run].fill(0),
                Ok(()) => {}
            }
        }
        sys::thread_ran().saturating_sub(begin)
    }
}

/// Returns the number of pages in memory from which on a chunk of `count` pages is copied from.
fn sparse(count: usize) -> usize {
    count.div_ceil(SPARSE)
}

/// Returns zeros, which take memory when they are changed: a sparse file may be large.
fn zeros(count: usize) -> Box<[AtomicU64]> {
    let layout = Layout::array::<AtomicU64>(count).expect("fewer bytes than the file has");
    if layout.size() == 0 {
        return Box::default();
    }
    // SAFETY: by the contract of `alloc_zeroed`, whose layout has bytes. If the memory is not null
    // it is an array of that many values, of which zero is one, and it has no other owner.
    unsafe {
        let start: *mut AtomicU64 = alloc::alloc_zeroed(layout).cast();
        if start.is_null() {
            alloc::handle_alloc_error(layout);
        }
        Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, count))
    }
}

/// Whether the kernel reports to this process which pages of a file are in memory.
///
/// Since Linux 5.2, `mincore` reports each page as resident unless the caller owns the file, may
/// write it, or has `CAP_FOWNER`. Otherwise one could observe what another user reads. So it is
/// asked about a page far beyond the end of the file, which is never in memory.
pub(super) fn is_reported(fd: RawFd, size: u64) -> bool {
    let page = mapping::page_bytes();
    let far = size.next_multiple_of(page as u64) + FAR_BYTES;
    let report = || -> io::Result<bool> {
        let mut resident = [0];
        Mapping::new(fd, page, far)?.residency(0, &mut resident)?;
        Ok(resident[0] & 1 == 0)
    };
    report().unwrap_or(false)
}
