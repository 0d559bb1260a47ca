//! Looking on for a while before going to sleep.
//!
//! Fibers of two workers that answer each other would have both workers fall asleep and be woken for
//! each message: a system call on either side, and the kernel's wake-up of an idle core, microseconds
//! for what takes a tenth of one. So a worker to which a message came soon after it had become idle
//! looks on for a while the next time before it sleeps. It is awake meanwhile: whoever posts sends no
//! wake-up. The while has to outlast the wake-up of the other side, or the two would take turns at
//! sleeping. After a look-out in vain it sleeps at once the next time, after a second one the next two
//! times, then four: where messages come just too late, next to nothing is wasted. A worker that waits
//! for disks or timers, or is alone, never lingers.

use super::Worker;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// For how long.
const LINGER: Duration = Duration::from_micros(100);
/// A message is soon that ends a sleep before this: its own wake-up is in it.
const SOON: Duration = Duration::from_micros(250);
/// Looks at the inbox for one at the clock, the ring and what others have to steal.
const LOOKS_AROUND: u32 = 8;
/// Sleeps that are not preceded by a look-out are 2 to this power at most.
const MOST_DOUBLINGS: u32 = 10;

/// Whether to look on.
#[derive(Default)]
pub(super) struct SpinPolicy {
    lingers: Cell<bool>,
    /// Look-outs in vain, one after the other.
    in_vain: Cell<u32>,
    /// Sleeps from which nothing is learnt.
    skips: Cell<u32>,
}

impl SpinPolicy {
    /// It has been idle for so long, asleep in the end, until a message came or something else.
    pub(super) fn learn(&self, idle: Duration, by_message: bool) {
        if !by_message || idle >= SOON {
            return;
        }
        match self.skips.get() {
            0 => self.lingers.set(true),
            skips => self.skips.set(skips - 1),
        }
    }

    fn was_in_vain(&self) {
        self.lingers.set(false);
        let in_vain = (self.in_vain.get() + 1).min(MOST_DOUBLINGS);
        self.in_vain.set(in_vain);
        self.skips.set((1 << in_vain) / 2);
    }
}

impl Worker {
    /// Looks on for a while, if that is worth it: whether something came.
    pub(super) fn linger(&self, begun: Instant) -> bool {
        if !self.patience.lingers.get() {
            return false;
        }
        while self.now() - begun < LINGER {
            if self.sees_something() {
                return true;
            }
            for _ in 0..LOOKS_AROUND {
                if self.mailbox.inbox.has_messages() {
                    self.patience.in_vain.set(0);
                    self.read_mail();
                    return true;
                }
                std::hint::spin_loop();
            }
        }
        self.patience.was_in_vain();
        false
    }

    /// Whether the ring wants to be entered, a timer is due, or another worker has fibers to start.
    fn sees_something(&self) -> bool {
        let due =
            self.has_timers.get() && self.timers.borrow().next().is_some_and(|at| at <= self.now());
        due || self.driver.borrow_mut().attention().1 || self.shared.has_loot(self.index)
    }
}
