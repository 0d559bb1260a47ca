//! Counters that one thread writes and any thread reads.
//!
//! A driver counts its calls into the kernel and the entries of each. It knows those numbers by
//! then, so counting adds nothing to the path of an op.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread writes by a plain load and store, without a locked instruction. Other
/// threads read it whole, possibly late.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the number and returns the sum. Only the owning thread calls this.
    #[inline(always)]
    pub fn add(&self, more: u64) -> u64 {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(more);
        self.0.store(sum, Ordering::Relaxed);
        sum
    }

    /// Adds one and returns the sum. Only the owning thread calls this.
    #[inline(always)]
    pub fn bump(&self) -> u64 {
        self.add(1)
    }

    /// Subtracts one. Only the owning thread calls this.
    #[inline(always)]
    pub fn take_one(&self) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
    }

    /// Replaces the number. Only the owning thread calls this.
    #[inline(always)]
    pub fn set(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The number of buckets by powers of two: 0, 1, 2 to 3, 4 to 7, … up to the largest queue.
pub const BUCKETS: usize = 17;

/// The counters of a driver.
#[derive(Debug, Default)]
pub struct Counts {
    /// Calls that submit, or wait, or both.
    pub enters: Counter,
    /// Those calls by the number of entries that each submitted.
    pub entries: [Counter; BUCKETS],
    /// The sum of those entries.
    pub submitted: Counter,
    /// Ops in flight when the driver last looked.
    pub in_flight: Counter,
    /// Calls that found the completion queue overflowed.
    pub overflows: Counter,
}

impl Counts {
    /// Counts a call into the kernel that submitted this number of entries.
    #[inline]
    pub fn entered(&self, entries: u32) {
        self.enters.bump();
        self.submitted.add(entries.into());
        let bucket = (u32::BITS - entries.leading_zeros()) as usize;
        self.entries[bucket.min(BUCKETS - 1)].bump();
    }
}
