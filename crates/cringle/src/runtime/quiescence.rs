//! Whether any fiber is left, and whether any worker is idle: two questions that are asked of
//! counts which other threads change meanwhile.
//!
//! # When is it over?
//!
//! Each worker counts the fibers that were made there and those that ended there; only the worker
//! itself writes its counts, and they only grow. To see whether any fiber is left, one reads *all*
//! ended counts, and then *all* made counts. If the sums are equal, then between the two readings
//! no fiber existed: ended(then) ≥ ended(read) = made(read) ≥ made(then) ≥ ended(then). Only fibers
//! make fibers, so none will exist later. (A thread that starts fibers from outside, as `BlockIo`
//! does, stops before it lets the runtime end.)
//!
//! A worker asks after its last fiber has ended. Of two that ask at once, one sees the other's
//! last count: between a worker's own count and its reading of the others' lies a full fence.
//!
//! # No loot is overlooked
//!
//! A spawner publishes its fiber and then looks for idle workers; a worker counts itself idle and
//! then looks for fibers to steal. With a full fence between the two on both sides, one sees the
//! other. `loom_tests` explores the interleavings of both.

use super::sync::{AtomicU64, AtomicUsize, Ordering, fence};

/// A count that one thread writes and others read, on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Count(AtomicU64);

impl Count {
    /// For the one thread that writes it.
    #[inline]
    pub(super) fn bump(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    pub(super) fn read(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Whether every fiber has ended: see the module. The counts are each worker's, made and ended.
pub(super) fn is_over<'a>(
    counts: impl Iterator<Item = (&'a Count, &'a Count)> + Clone,
    made_outside: &AtomicU64,
) -> bool {
    fence(Ordering::SeqCst);
    let ended: u64 = counts.clone().map(|(_, ended)| ended.read()).sum();
    fence(Ordering::SeqCst);
    let made: u64 = counts.map(|(made, _)| made.read()).sum();
    ended == made + made_outside.load(Ordering::Acquire)
}

/// Workers that are about to sleep, or do.
#[derive(Default)]
pub(super) struct Idlers(AtomicUsize);

impl Idlers {
    /// For a worker, before it looks for loot for the last time.
    pub(super) fn enter(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    pub(super) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// For a spawner, after it has published its loot: whether somebody may sleep over it.
    #[inline]
    pub(super) fn any(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) > 0
    }
}
