//! The row of events from a worker to the thread that writes the file: one writes, one reads.
//!
//! The worker writes slots and then `tail`; the reader reads `tail`, the slots before it, and then gives
//! them back by `head`. So no slot is touched by both (acquire and release on the two indices), nothing is
//! allocated, and a reader that is late costs the worker nothing but events: those that find no room are
//! counted. Slots are mapped when they are first used.

use super::clock::Clock;
use super::event::Event;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// See the module.
pub(super) struct EventQueue {
    slots: Box<[UnsafeCell<Event>]>,
    head: AtomicUsize,
    tail: AtomicUsize,
    /// Events that found no room and were not told of in the row.
    lost: AtomicU64,
    /// The worker writes no more.
    closed: AtomicBool,
    pub(super) origin: Origin,
}

/// Whose events these are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) worker: u32,
    pub(super) thread: u32,
    /// Tells this row from all others of the trace.
    pub(super) sequence: u32,
    pub(super) clock: Clock,
    pub(super) names: &'static super::EventNames,
}

// SAFETY: a slot is touched by the one writer or by the one reader, never by both: see the module.
unsafe impl Sync for EventQueue {}
// SAFETY: as above; events are plain words.
unsafe impl Send for EventQueue {}

impl EventQueue {
    pub(super) fn new(capacity: usize, origin: Origin) -> EventQueue {
        let capacity = capacity.next_power_of_two();
        // Zeroed by the system, page by page.
        let slots = (0..capacity).map(|_| UnsafeCell::new(Event::default())).collect();
        let zero = || AtomicUsize::new(0);
        let (lost, closed) = (AtomicU64::new(0), AtomicBool::new(false));
        EventQueue { slots, head: zero(), tail: zero(), lost, closed, origin }
    }

    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// For the worker: how far the reader has come.
    pub(super) fn head(&self) -> usize {
        self.head.load(Ordering::Acquire)
    }

    /// For the worker.
    ///
    /// # Safety
    ///
    /// The calling thread is the one that writes, and `at` is less than a capacity beyond the head.
    #[inline(always)]
    pub(super) unsafe fn write(&self, at: usize, event: Event) {
        let slot = &self.slots[at & (self.slots.len() - 1)];
        // SAFETY: by the contract, the reader has given the slot back and does not see it before `publish`.
        unsafe { *slot.get() = event };
    }

    /// For the worker: everything before `tail` can be read.
    #[inline(always)]
    pub(super) fn publish(&self, tail: usize) {
        self.tail.store(tail, Ordering::Release);
    }

    pub(super) fn set_lost(&self, lost: u64) {
        self.lost.store(lost, Ordering::Relaxed);
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// For the reader: what can be read, from where to where.
    pub(super) fn readable(&self) -> (usize, usize) {
        (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Acquire))
    }

    /// For the reader.
    ///
    /// # Safety
    ///
    /// The calling thread is the one that reads, and `at` lies in what is [`readable`](Self::readable).
    pub(super) unsafe fn read(&self, at: usize) -> Event {
        // SAFETY: by the contract, the worker has published the slot and does not touch it before `give_back`.
        unsafe { *self.slots[at & (self.slots.len() - 1)].get() }
    }

    /// For the reader: everything before `head` can be written again.
    pub(super) fn give_back(&self, head: usize) {
        self.head.store(head, Ordering::Release);
    }
}
