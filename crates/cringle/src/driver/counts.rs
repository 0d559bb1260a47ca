//! Counts that one thread writes and any thread reads.
//!
//! A driver counts how often it asked the kernel, and for how much at once. What is counted is known by
//! then, so that nothing is paid for each op.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread writes: a plain addition, without a lock on the bus. Other threads read it
/// whole, and may read it late.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// For the one thread that writes it: what it comes to.
    #[inline(always)]
    pub(crate) fn add(&self, more: u64) -> u64 {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(more);
        self.0.store(sum, Ordering::Relaxed);
        sum
    }

    /// For the one thread that writes it: what it comes to.
    #[inline(always)]
    pub(crate) fn bump(&self) -> u64 {
        self.add(1)
    }

    /// For the one thread that writes it.
    #[inline(always)]
    pub(crate) fn take_one(&self) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
    }

    /// For the one thread that writes it.
    #[inline(always)]
    pub(crate) fn set(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts by powers of two: 0, 1, 2 to 3, 4 to 7, … up to what the largest queue holds.
pub(crate) const BUCKETS: usize = 17;

/// What a driver counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Calls that submit, or wait, or both.
    pub(crate) enters: Counter,
    /// How many entries each of them submitted.
    pub(crate) entries: [Counter; BUCKETS],
    /// Their sum.
    pub(crate) submitted: Counter,
    /// Ops under way when the driver last looked.
    pub(crate) in_flight: Counter,
    /// Calls before which the completion queue had overflowed.
    pub(crate) overflows: Counter,
}

impl Counts {
    /// The kernel was asked, and has taken so many entries.
    #[inline]
    pub(crate) fn entered(&self, entries: u32) {
        self.enters.bump();
        self.submitted.add(entries.into());
        let bucket = (u32::BITS - entries.leading_zeros()) as usize;
        self.entries[bucket.min(BUCKETS - 1)].bump();
    }
}
