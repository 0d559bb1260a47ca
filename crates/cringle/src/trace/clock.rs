//! What time it is, cheaply, and what that is in nanoseconds.
//!
//! A stamp is taken for each suspension, so the processor's counter is read where it runs at one rate
//! whatever the processor does: half the time of `clock_gettime`, which reads the same counter and then
//! converts it. Who writes the file converts, by two readings of both clocks around what it converts: no
//! rate has to be found out before a program may start, and no error adds up.

use crate::sys;

/// What a worker's stamps are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The processor's counter.
    Counter,
    /// Nanoseconds since the machine was started.
    Boot,
    /// Nanoseconds of a simulation: they stand still while fibers run.
    Virtual,
}

impl Clock {
    /// The cheapest that is right here.
    pub(crate) fn real() -> Clock {
        match has_steady_counter() {
            true => Clock::Counter,
            false => Clock::Boot,
        }
    }

    /// Not for virtual time, which its worker tells.
    #[inline(always)]
    pub(super) fn now(self) -> u64 {
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: every x86-64 processor has the instruction.
            Clock::Counter => unsafe { std::arch::x86_64::_rdtsc() },
            _ => sys::boot_ns(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_steady_counter() -> bool {
    use std::arch::x86_64::__cpuid;
    const INVARIANT_TSC: u32 = 1 << 8;
    let last = __cpuid(0x8000_0000).eax;
    last >= 0x8000_0007 && __cpuid(0x8000_0007).edx & INVARIANT_TSC != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_steady_counter() -> bool {
    false
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    counter: u64,
    ns: u64,
}

impl Anchor {
    pub(super) fn now() -> Anchor {
        Anchor { counter: Clock::Counter.now(), ns: sys::boot_ns() }
    }

    pub(super) fn ns(self) -> u64 {
        self.ns
    }
}

/// From stamps to nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    near: Anchor,
    /// Nanoseconds for a tick, times 2³².
    rate: u64,
}

impl Scale {
    /// For stamps about an anchor, at the rate between two others, far from each other if possible: then
    /// what a reading takes does not show.
    pub(super) fn from(near: Anchor, first: Anchor, last: Anchor) -> Scale {
        let ticks = last.counter.saturating_sub(first.counter).max(1);
        let ns = last.ns.saturating_sub(first.ns);
        let rate = (u128::from(ns) << 32) / u128::from(ticks);
        Scale { near, rate: rate as u64 }
    }

    pub(super) fn ns(&self, stamp: u64) -> u64 {
        let scaled = |ticks: u64| ((u128::from(ticks) * u128::from(self.rate)) >> 32) as u64;
        match stamp >= self.near.counter {
            true => self.near.ns + scaled(stamp - self.near.counter),
            false => self.near.ns.saturating_sub(scaled(self.near.counter - stamp)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_between_two_readings_lies_between_their_times() {
        let first = Anchor { counter: 1_000, ns: 50_000 };
        let last = Anchor { counter: 4_000, ns: 51_000 };
        let scale = Scale::from(first, first, last);
        assert_eq!(scale.ns(1_000), 50_000);
        assert!((50_499..=50_500).contains(&scale.ns(2_500)));
        assert!((50_999..=51_000).contains(&scale.ns(4_000)));
        assert!((49_800..=49_801).contains(&scale.ns(400)));
    }
}
