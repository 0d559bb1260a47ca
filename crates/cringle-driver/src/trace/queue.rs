//! The queue of events from a worker to the writer thread: a bounded ring with a single producer
//! and a single consumer.
//!
//! The worker writes slots and then publishes them by `tail`. The reader loads `tail`, reads the
//! slots before it, and then releases them by `head`. Both indices use acquire and release, so no
//! slot is accessed by both threads at once. Nothing is allocated after the start. If the reader is
//! late, the worker does not wait: events without room are counted. The kernel maps the slots when
//! they are first written.

use super::clock::Clock;
use super::event::Event;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The queue of a worker. See the [module](self).
pub struct EventQueue {
    slots: Box<[UnsafeCell<Event>]>,
    head: AtomicUsize,
    tail: AtomicUsize,
    /// The number of lost events that no `Kind::Lost` event in the queue has recorded yet.
    lost: AtomicU64,
    /// Whether the worker has stopped writing.
    closed: AtomicBool,
    pub origin: Origin,
}

/// The worker that writes the events.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    pub worker: u32,
    pub thread: u32,
    /// The number of the queue, which is unique in the trace.
    pub sequence: u32,
    pub clock: Clock,
    pub names: &'static super::EventNames,
}

// SAFETY: the contract of `write` and `read`: one thread writes and one reads, never the same slot
// at once.
unsafe impl Sync for EventQueue {}
// SAFETY: as above; events are plain integers.
unsafe impl Send for EventQueue {}

impl EventQueue {
    pub fn new(capacity: usize, origin: Origin) -> EventQueue {
        let capacity = capacity.next_power_of_two();
        let slots = (0..capacity).map(|_| UnsafeCell::new(Event::default())).collect();
        let zero = || AtomicUsize::new(0);
        let (lost, closed) = (AtomicU64::new(0), AtomicBool::new(false));
        EventQueue { slots, head: zero(), tail: zero(), lost, closed, origin }
    }

    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Returns the index up to which the reader has released slots. For the worker.
    pub fn head(&self) -> usize {
        self.head.load(Ordering::Acquire)
    }

    /// Writes a slot. For the worker.
    ///
    /// # Safety
    ///
    /// Only one thread writes, and `at` is less than the capacity beyond the head.
    #[inline(always)]
    pub unsafe fn write(&self, at: usize, event: Event) {
        let slot = &self.slots[at & (self.slots.len() - 1)];
        // SAFETY: by the contract, the reader has released the slot, and does not read it before
        // `publish`.
        unsafe { *slot.get() = event };
    }

    /// Publishes the slots before `tail`. For the worker.
    #[inline(always)]
    pub fn publish(&self, tail: usize) {
        self.tail.store(tail, Ordering::Release);
    }

    pub fn set_lost(&self, lost: u64) {
        self.lost.store(lost, Ordering::Relaxed);
    }

    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns the range of published slots. For the reader.
    pub fn readable(&self) -> (usize, usize) {
        (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Acquire))
    }

    /// Reads a slot. For the reader.
    ///
    /// # Safety
    ///
    /// Only one thread reads, and `at` is in the [`readable`](Self::readable) range.
    pub unsafe fn read(&self, at: usize) -> Event {
        // SAFETY: by the contract, the worker has published the slot, and does not write it before
        // `release`.
        unsafe { *self.slots[at & (self.slots.len() - 1)].get() }
    }

    /// Releases the slots before `head`. For the reader.
    pub fn release(&self, head: usize) {
        self.head.store(head, Ordering::Release);
    }
}
