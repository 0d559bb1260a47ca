//! Detects that no fiber is left, and that an idle worker could steal one. Other threads change the
//! counts meanwhile.
//!
//! # The end of the last fiber
//!
//! Each worker counts the fibers that were made there and the fibers that ended there. Only the
//! worker itself writes its counts, and they only grow. A worker that checks for the end reads
//! *all* ended counts first and *all* made counts after them. If the sums are equal, no fiber
//! existed at the moment between the two readings: ended(moment) ≥ ended(read) = made(read) ≥
//! made(moment) ≥ ended(moment). Only fibers make fibers, so none will exist later. (A thread that
//! starts fibers from outside, as `BlockIo` does, stops before it lets the runtime end.)
//!
//! A worker checks after its last fiber has ended. If two workers check at once, one of them sees
//! the other's last count, because a full fence lies between a worker's own count and its reading
//! of the others'. The four-counter method of Mattern (1987) rests on the same argument, with
//! messages in place of shared counts.
//!
//! # No unstarted fiber is overlooked
//!
//! A spawner publishes its fiber and then looks for idle workers. A worker counts itself idle and
//! then looks for fibers to steal. With a full fence between the two steps on both sides, one sees
//! the other. `loom_tests` explores the interleavings of both protocols.

use super::sync::{AtomicU64, AtomicUsize, Ordering, fence};

/// A count that one thread writes and others read. On a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
pub struct Count(AtomicU64);

impl Count {
    /// Adds one. For the one thread that writes it.
    #[inline]
    pub(super) fn bump(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Whether every fiber has ended: see the module. `counts` are each worker's made and ended fibers.
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

/// The number of workers that sleep, or are about to.
#[derive(Default)]
pub(super) struct Idlers(AtomicUsize);

impl Idlers {
    /// For a worker, before it looks for fibers to steal for the last time.
    pub(super) fn enter(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    pub(super) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a worker may sleep, without order among other accesses.
    #[inline]
    pub(super) fn seem_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// For a spawner, after it has published its fiber: whether a worker may sleep.
    #[inline]
    pub(super) fn any(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) > 0
    }
}
