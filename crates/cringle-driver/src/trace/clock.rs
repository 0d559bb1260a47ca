//! Time stamps that are cheap to take, and their conversion to nanoseconds.
//!
//! Each suspension takes a stamp. Where the processor's counter runs at a constant rate, the stamp
//! is the counter, which costs less than `clock_gettime`: that reads the same counter and then
//! converts it. The writer thread converts stamps by readings of both clocks before and after them.
//! So no rate has to be calibrated before a program starts, and errors do not accumulate.

use cringle_sys as sys;

/// The clock of a worker's stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The processor's counter.
    Counter,
    /// Nanoseconds since boot.
    Boot,
    /// Nanoseconds of a simulation, which do not pass while fibers run.
    Virtual,
}

impl Clock {
    /// Returns the cheapest clock that is accurate on this machine.
    pub fn real() -> Clock {
        if has_steady_counter() { Clock::Counter } else { Clock::Boot }
    }

    /// Takes a stamp. Virtual time is set by the worker instead.
    #[inline(always)]
    pub fn now(self) -> u64 {
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: no pointers; every x86-64 processor has the instruction.
            Clock::Counter => unsafe { std::arch::x86_64::_rdtsc() },
            _ => sys::boot_ns(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_steady_counter() -> bool {
    use std::arch::x86_64::__cpuid;
    const INVARIANT_TSC: u32 = 1 << 8;
    // SAFETY: no pointer, and each x86-64 processor has the instruction.
    #[allow(unused_unsafe, reason = "newer versions of Rust know that")]
    let cpuid = |leaf| unsafe { __cpuid(leaf) };
    cpuid(0x8000_0000).eax >= 0x8000_0007 && cpuid(0x8000_0007).edx & INVARIANT_TSC != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_steady_counter() -> bool {
    false
}

/// A reading of both clocks at the same moment.
#[derive(Clone, Copy, Debug)]
pub struct Anchor {
    counter: u64,
    ns: u64,
}

impl Anchor {
    pub fn now() -> Anchor {
        Anchor { counter: Clock::Counter.now(), ns: sys::boot_ns() }
    }

    pub fn ns(self) -> u64 {
        self.ns
    }
}

/// A conversion from stamps to nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    near: Anchor,
    /// The nanoseconds per tick, times 2³².
    rate: u64,
}

impl Scale {
    /// Returns a conversion for stamps near an anchor, at the rate between two other anchors. These
    /// should be far apart, so that the duration of a reading is negligible.
    pub fn from(near: Anchor, first: Anchor, last: Anchor) -> Scale {
        let ticks = last.counter.saturating_sub(first.counter).max(1);
        let ns = last.ns.saturating_sub(first.ns);
        let rate = (u128::from(ns) << 32) / u128::from(ticks);
        Scale { near, rate: rate as u64 }
    }

    pub fn ns(&self, stamp: u64) -> u64 {
        let scaled = |ticks: u64| ((u128::from(ticks) * u128::from(self.rate)) >> 32) as u64;
        if stamp >= self.near.counter {
            self.near.ns + scaled(stamp - self.near.counter)
        } else {
            self.near.ns.saturating_sub(scaled(self.near.counter - stamp))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_interpolated_between_two_readings() {
        let first = Anchor { counter: 1_000, ns: 50_000 };
        let last = Anchor { counter: 4_000, ns: 51_000 };
        let scale = Scale::from(first, first, last);
        assert_eq!(scale.ns(1_000), 50_000);
        assert!((50_499..=50_500).contains(&scale.ns(2_500)));
        assert!((50_999..=51_000).contains(&scale.ns(4_000)));
        assert!((49_800..=49_801).contains(&scale.ns(400)));
    }
}
