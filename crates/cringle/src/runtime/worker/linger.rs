//! Looking on for a while before going to sleep.
//!
//! Fibers of two workers that answer each other would have both workers fall asleep and be woken for
//! each message: a system call on either side, and the kernel's wake-up of an idle core, microseconds
//! for what takes a tenth of one. So a worker to which a message came soon after it had become idle
//! looks on for that long the next time before it sleeps; each time in vain it looks half as long. It is
//! awake meanwhile: whoever posts sends no wake-up. It has to outlast the wake-up of the other side, or
//! the two would take turns at sleeping. A worker that waits for disks or timers, or is alone, never
//! lingers.

use super::Worker;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// For how long, at most.
const LONGEST: Duration = Duration::from_micros(100);
/// Looks at the inbox for one at the clock, the ring and what others have to steal.
const LOOKS_AROUND: u32 = 8;

/// How long to look on.
#[derive(Default)]
pub(super) struct Patience(Cell<Duration>);

impl Patience {
    /// It has been idle for so long, asleep in the end, until a message came or something else.
    pub(super) fn learn(&self, idle: Duration, by_message: bool) {
        if by_message && idle < LONGEST {
            self.0.set(LONGEST);
        }
    }
}

impl Worker {
    /// Looks on for a while, if that is worth it: whether something came.
    pub(super) fn linger(&self, begun: Instant) -> bool {
        let patience = self.patience.0.get();
        if patience.is_zero() {
            return false;
        }
        while self.now() - begun < patience {
            if self.sees_something() {
                return true;
            }
            for _ in 0..LOOKS_AROUND {
                if self.mailbox.inbox.has_messages() {
                    self.read_mail();
                    return true;
                }
                std::hint::spin_loop();
            }
        }
        // Below a microsecond it is not worth the looks.
        let less = patience / 2;
        self.patience.0.set(if less < Duration::from_micros(1) { Duration::ZERO } else { less });
        false
    }

    /// Whether the ring wants to be entered, a timer is due, or another worker has fibers to start.
    fn sees_something(&self) -> bool {
        let due =
            self.has_timers.get() && self.timers.borrow().next().is_some_and(|at| at <= self.now());
        due || self.driver.borrow_mut().attention().1 || self.shared.has_loot(self.index)
    }
}
