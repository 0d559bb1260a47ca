//! A worker's timers: an ordered map, so that setting, taking back and firing one cost O(log n) and
//! no system call. The kernel learns only the nearest one, as the limit of the worker's wait.

use super::cancelled::Reason;
use super::fiber::FiberRef;
use super::region::Region;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::time::Instant;

/// Names a timer that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerId {
    at: Instant,
    number: u64,
}

/// What happens when a timer fires.
#[derive(Clone, Copy)]
pub(crate) enum Alarm {
    /// The fiber's wait ends.
    Wake(FiberRef),
    /// A region of the fiber is cancelled; it lies in the fiber's frame, which takes the timer back
    /// before it goes.
    Expire(FiberRef, NonNull<Region>, Reason),
    /// Cancelled fibers that still wait are looked for.
    ReportStubborn,
}

/// See the module.
#[derive(Default)]
pub(super) struct Timers {
    set: BTreeMap<TimerId, Alarm>,
    next_number: u64,
}

impl Timers {
    /// Sets a timer. It is to be [removed](Self::remove) when its wait ends, fired or not.
    pub(super) fn insert(&mut self, at: Instant, alarm: Alarm) -> TimerId {
        let id = TimerId { at, number: self.next_number };
        self.next_number += 1;
        self.set.insert(id, alarm);
        id
    }

    pub(super) fn remove(&mut self, id: TimerId) {
        self.set.remove(&id);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.set.first_key_value().map(|(id, _)| id.at)
    }

    /// Takes the earliest timer that is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Alarm> {
        let first = self.set.first_entry()?;
        (first.key().at <= now).then(|| first.remove())
    }
}
