//! The buffer pool's state: which page is in which frame, which frames are dirty, which are free,
//! and who waits. It performs no I/O and never waits, so that every rung uses it: the caller
//! performs the reads and writes that it asks for, and reports their end.
//!
//! A frame is free, being loaded, resident, or being written back; only the code that loads or
//! writes a frame may use its bytes meanwhile. Victims are chosen by a clock: a frame that was used
//! since the hand last passed gets a second chance.
//!
//! A `T` wakes a waiter. Each waiter waits for one thing, and whoever receives a `T` from here
//! wakes it.

use super::wal::NO_RECORD;
use std::collections::VecDeque;

/// In `table`: the page is in no frame.
const ABSENT: u32 = u32::MAX;

pub(super) struct Pool<T> {
    /// The frame of each page.
    table: Vec<u32>,
    frames: Vec<Frame>,
    free: Vec<u32>,
    hand: usize,
    /// Frames that are being written back.
    writing: usize,
    /// Background eviction begins when fewer frames than this are free or about to be.
    low_mark: usize,
    page_waiters: Vec<(u32, T)>,
    frame_waiters: VecDeque<T>,
    idle_evictors: Vec<T>,
    closed: bool,
    counts: Counts,
}

#[derive(Clone, Copy, Default)]
struct Frame {
    page: u32,
    state: State,
    dirty: bool,
    referenced: bool,
    /// The last record in the log of a change of the page.
    record: u64,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum State {
    #[default]
    Free,
    Loading,
    Resident,
    Writing,
}

/// What the pool has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// The number of times that dirty pages were chosen and written, one or many at a time.
    pub(super) evictions: u64,
    /// Waits for a page that another transaction loaded or that was written back.
    pub(super) page_waits: u64,
    /// Waits for a free frame.
    pub(super) frame_waits: u64,
}

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Found {
    Resident(u32),
    /// The frame is being loaded or written back.
    Busy(u32),
    Absent,
}

/// A frame that gets another page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Exchange {
    pub(super) frame: u32,
    /// The page to be written first.
    pub(super) dirty: Option<u32>,
    /// The record that must be durable before.
    pub(super) record: u64,
}

/// A dirty page to be written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Victim {
    pub(super) page: u32,
    pub(super) frame: u32,
    /// The record that must be durable before.
    pub(super) record: u64,
}

impl<T> Pool<T> {
    /// Creates a pool for the pages of a tree. All frames are free.
    pub(super) fn new(pages: u64, frames: usize, low_mark: usize) -> Pool<T> {
        Pool {
            table: vec![ABSENT; pages as usize],
            frames: vec![Frame::default(); frames],
            free: (0..frames as u32).rev().collect(),
            hand: 0,
            writing: 0,
            low_mark,
            page_waiters: Vec::new(),
            frame_waiters: VecDeque::new(),
            idle_evictors: Vec::new(),
            closed: false,
            counts: Counts::default(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    #[inline]
    pub(super) fn find(&mut self, page: u32) -> Found {
        let frame = self.table[page as usize];
        if frame == ABSENT {
            return Found::Absent;
        }
        let entry = &mut self.frames[frame as usize];
        if entry.state != State::Resident {
            return Found::Busy(frame);
        }
        entry.referenced = true;
        Found::Resident(frame)
    }

    /// Takes a free frame, into which the caller loads the page.
    pub(super) fn take(&mut self, page: u32) -> Option<u32> {
        let frame = self.free.pop()?;
        let entry = &mut self.frames[frame as usize];
        *entry = Frame { page, state: State::Loading, referenced: true, dirty: false, ..*entry };
        entry.record = NO_RECORD;
        self.table[page as usize] = frame;
        self.counts.reads += 1;
        Some(frame)
    }

    /// Puts a page, which the caller has in memory, into a free frame, and marks it dirty.
    pub(super) fn fill(&mut self, page: u32) -> Option<u32> {
        let frame = self.take(page)?;
        self.loaded(frame, &mut Vec::new());
        self.mark_dirty(frame, NO_RECORD);
        Some(frame)
    }

    /// Moves the hand over a frame. Returns it if it may get another page.
    fn pass(&mut self) -> Option<u32> {
        let frame = self.hand;
        self.hand = (frame + 1) % self.frames.len();
        let entry = &mut self.frames[frame];
        let has_chance = entry.state != State::Resident || std::mem::take(&mut entry.referenced);
        (!has_chance).then_some(frame as u32)
    }

    /// Chooses a frame for a page. The caller writes its old page, if that is dirty, and loads the
    /// new one. Until [`exchanged`](Self::exchanged) both pages are busy. Returns `None` if every
    /// frame is busy.
    pub(super) fn exchange(&mut self, page: u32) -> Option<Exchange> {
        for _ in 0..2 * self.frames.len() {
            let Some(frame) = self.pass() else { continue };
            let entry = &mut self.frames[frame as usize];
            entry.state = State::Writing;
            let dirty = std::mem::take(&mut entry.dirty).then_some(entry.page);
            self.table[page as usize] = frame;
            self.counts.reads += 1;
            self.counts.writes += u64::from(dirty.is_some());
            self.counts.evictions += u64::from(dirty.is_some());
            let record = std::mem::replace(&mut entry.record, NO_RECORD);
            return Some(Exchange { frame, dirty, record });
        }
        None
    }

    /// Records that a frame has its new page, or has none because of an error.
    pub(super) fn exchanged(&mut self, frame: u32, page: u32, is_ok: bool, woken: &mut Vec<T>) {
        let entry = &mut self.frames[frame as usize];
        debug_assert!(entry.state == State::Writing);
        self.table[entry.page as usize] = ABSENT;
        entry.page = page;
        if is_ok {
            entry.state = State::Resident;
            entry.referenced = true;
            self.wake_for_page(frame, woken);
        } else {
            self.release(frame, woken);
        }
    }

    /// Records that the page of a frame is loaded.
    pub(super) fn loaded(&mut self, frame: u32, woken: &mut Vec<T>) {
        debug_assert!(self.frames[frame as usize].state == State::Loading);
        self.frames[frame as usize].state = State::Resident;
        self.wake_for_page(frame, woken);
    }

    #[inline]
    pub(super) fn mark_dirty(&mut self, frame: u32, record: u64) {
        let entry = &mut self.frames[frame as usize];
        entry.dirty = true;
        entry.record = entry.record.max(record);
    }

    /// Chooses up to `count` frames to evict. Clean ones are free at once; returns the dirty ones,
    /// which the caller writes.
    pub(super) fn victims(&mut self, count: usize, woken: &mut Vec<T>) -> Vec<Victim> {
        let mut victims = Vec::with_capacity(count);
        let mut found = 0;
        for _ in 0..2 * self.frames.len() {
            if found == count {
                break;
            }
            let Some(frame) = self.pass() else { continue };
            let entry = &mut self.frames[frame as usize];
            found += 1;
            if entry.dirty {
                entry.state = State::Writing;
                let (page, record) = (entry.page, entry.record);
                victims.push(Victim { page, frame, record });
            } else {
                self.release(frame, woken);
            }
        }
        self.writing += victims.len();
        self.counts.writes += victims.len() as u64;
        self.counts.evictions += u64::from(!victims.is_empty());
        victims
    }

    /// Records that victims are written. Their frames are free.
    pub(super) fn written(&mut self, victims: &[Victim], woken: &mut Vec<T>) {
        self.writing -= victims.len();
        for victim in victims {
            debug_assert!(self.frames[victim.frame as usize].state == State::Writing);
            self.release(victim.frame, woken);
        }
    }

    /// Frees a frame, whose page was written back, was clean, or could not be loaded.
    pub(super) fn release(&mut self, frame: u32, woken: &mut Vec<T>) {
        let entry = &mut self.frames[frame as usize];
        entry.state = State::Free;
        self.table[entry.page as usize] = ABSENT;
        self.free.push(frame);
        self.wake_for_page(frame, woken);
        woken.extend(self.frame_waiters.pop_front());
    }

    fn wake_for_page(&mut self, frame: u32, woken: &mut Vec<T>) {
        if !self.page_waiters.is_empty() {
            let waiters = self.page_waiters.extract_if(.., |(awaited, _)| *awaited == frame);
            woken.extend(waiters.map(|(_, waiter)| waiter));
        }
    }

    /// Registers a waiter for a busy frame.
    pub(super) fn wait_for_page(&mut self, frame: u32, waiter: T) {
        self.counts.page_waits += 1;
        self.page_waiters.push((frame, waiter));
    }

    /// Registers a waiter for a free frame.
    pub(super) fn wait_for_frame(&mut self, waiter: T) {
        self.counts.frame_waits += 1;
        self.frame_waiters.push_back(waiter);
    }

    /// Returns another waiter for a free frame, for one that was woken and no longer needs it.
    pub(super) fn pass_on(&mut self) -> Option<T> {
        if self.free.is_empty() { None } else { self.frame_waiters.pop_front() }
    }

    /// Whether background eviction has work.
    pub(super) fn is_low(&self) -> bool {
        self.free.len() + self.writing < self.low_mark
    }

    /// Returns an evictor to wake, if there is work for one.
    pub(super) fn evictor(&mut self) -> Option<T> {
        if self.is_low() { self.idle_evictors.pop() } else { None }
    }

    /// Registers an evictor that waits for work.
    pub(super) fn wait_for_work(&mut self, evictor: T) {
        self.idle_evictors.push(evictor);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Ends the work, after the last transaction or after a failure: returns every waiter.
    pub(super) fn close(&mut self, woken: &mut Vec<T>) {
        self.closed = true;
        woken.append(&mut self.idle_evictors);
        woken.extend(self.frame_waiters.drain(..));
        woken.extend(self.page_waiters.drain(..).map(|(_, waiter)| waiter));
    }

    /// Returns the dirty pages, in the order of their numbers, and marks them clean.
    pub(super) fn clean_all(&mut self) -> Vec<Victim> {
        let mut dirty = Vec::new();
        for (frame, entry) in (0..).zip(&mut self.frames) {
            if entry.state == State::Resident && std::mem::take(&mut entry.dirty) {
                dirty.push(Victim { page: entry.page, frame, record: entry.record });
            }
        }
        dirty.sort_unstable_by_key(|victim| victim.page);
        dirty
    }

    /// Sets the counts to zero, when the measured work begins.
    pub(super) fn reset_counts(&mut self) {
        self.counts = Counts::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four pages, two frames, both taken by pages 0 and 1.
    fn full() -> Pool<u32> {
        let mut pool = Pool::new(4, 2, 1);
        for page in 0..2 {
            let frame = pool.take(page).unwrap();
            pool.loaded(frame, &mut Vec::new());
        }
        pool
    }

    #[test]
    fn a_dirty_victim_is_busy_until_it_is_written() {
        let (mut pool, mut woken) = (full(), Vec::new());
        let Found::Resident(frame) = pool.find(0) else { panic!("page 0 was loaded") };
        pool.mark_dirty(frame, 5);
        pool.mark_dirty(frame, 4);
        assert!(pool.take(2).is_none());
        let victims = pool.victims(1, &mut woken);
        assert_eq!(victims, [Victim { page: 0, frame, record: 5 }]);
        assert_eq!(pool.find(0), Found::Busy(frame));
        pool.wait_for_page(frame, 7);
        pool.wait_for_frame(8);
        assert!(woken.is_empty());
        pool.written(&victims, &mut woken);
        assert_eq!(woken, [7, 8]);
        assert_eq!(pool.find(0), Found::Absent);
        assert_eq!(pool.take(2), Some(frame));
        assert_eq!(pool.find(2), Found::Busy(frame));
    }

    #[test]
    fn a_clean_victim_is_free_at_once() {
        let (mut pool, mut woken) = (full(), Vec::new());
        pool.wait_for_frame(9);
        assert!(pool.victims(1, &mut woken).is_empty());
        assert_eq!(woken, [9]);
        assert!(pool.take(3).is_some());
    }

    #[test]
    fn both_pages_of_an_exchange_are_busy() {
        let (mut pool, mut woken) = (full(), Vec::new());
        pool.mark_dirty(0, 6);
        let exchange = pool.exchange(3).unwrap();
        assert_eq!(exchange, Exchange { frame: 0, dirty: Some(0), record: 6 });
        assert_eq!([pool.find(0), pool.find(3)], [Found::Busy(0), Found::Busy(0)]);
        pool.wait_for_page(0, 7);
        pool.exchanged(0, 3, true, &mut woken);
        assert_eq!([pool.find(0), pool.find(3)], [Found::Absent, Found::Resident(0)]);
        assert_eq!(woken, [7]);
        pool.mark_dirty(0, NO_RECORD);
        let failed = (pool.exchange(0).unwrap(), pool.exchange(2).unwrap());
        assert_eq!(failed.1, Exchange { frame: 0, dirty: Some(3), record: NO_RECORD });
        pool.exchanged(0, 2, false, &mut woken);
        assert_eq!([pool.find(2), pool.find(3)], [Found::Absent, Found::Absent]);
        assert_eq!(pool.exchange(3), None, "one frame is free, the other one is busy");
    }

    #[test]
    fn a_page_in_use_gets_a_second_chance() {
        let mut pool = full();
        pool.victims(1, &mut Vec::new());
        assert_eq!(pool.find(0), Found::Absent, "both were in use; the hand came to 0 first");
        pool.find(1);
        let frame = pool.take(2).unwrap();
        pool.loaded(frame, &mut Vec::new());
        pool.frames[frame as usize].referenced = false;
        pool.victims(1, &mut Vec::new());
        assert_ne!(pool.find(1), Found::Absent);
        assert_eq!(pool.find(2), Found::Absent);
    }

    #[test]
    fn a_waiter_without_need_passes_the_frame_on() {
        let (mut pool, mut woken) = (full(), Vec::new());
        pool.wait_for_frame(1);
        pool.wait_for_frame(2);
        pool.victims(1, &mut woken);
        assert_eq!((woken, pool.pass_on()), (vec![1], Some(2)));
        pool.take(3).unwrap();
        assert_eq!(pool.pass_on(), None);
    }

    #[test]
    fn closing_wakes_every_waiter() {
        let (mut pool, mut woken) = (full(), Vec::new());
        pool.wait_for_frame(1);
        pool.wait_for_page(0, 2);
        pool.wait_for_work(3);
        pool.close(&mut woken);
        woken.sort_unstable();
        assert_eq!(woken, [1, 2, 3]);
        assert!(pool.is_closed());
    }
}
