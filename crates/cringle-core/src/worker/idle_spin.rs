//! Polls for a while before the worker sleeps, where a message is likely to arrive soon.
//!
//! Fibers of two workers that answer each other would otherwise let both workers sleep and be woken
//! for each message: a system call on either side, and the kernel's wake-up of an idle core, which
//! takes far longer than the message itself. So a worker that received a message soon after it
//! became idle polls the next time before it sleeps. It counts as awake meanwhile, and senders send
//! no wake-up. It has to poll for longer than the wake-up of the other side takes, or the two would
//! alternate in sleeping.
//!
//! After a poll without success the worker ignores the next sleep that a message ends soon, after a
//! second one the next two such sleeps, then four: an exponential back-off, so that little is
//! wasted where messages arrive just too late. Sleeps that lasted longer, or that something else
//! ended, do not count. A worker that waits for disks or timers, or that is alone, never polls.

use super::Worker;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long the worker polls.
const SPIN: Duration = Duration::from_micros(100);
/// A sleep that a message ends before this would have been worth a poll. It includes its own
/// wake-up.
const SOON: Duration = Duration::from_micros(250);
/// Checks of the inbox for each check of the clock, the ring and other workers' queues.
const INBOX_CHECKS: u32 = 8;
/// The back-off skips at most 2 to this power sleeps, divided by two.
const MAX_DOUBLINGS: u32 = 10;

/// Decides whether to poll.
#[derive(Default)]
pub(super) struct SpinPolicy {
    spins_next: Cell<bool>,
    /// Polls without success in a row.
    failures: Cell<u32>,
    /// Soon-ended sleeps to ignore before the next poll.
    skips: Cell<u32>,
}

impl SpinPolicy {
    /// Learns from a sleep: the worker was idle for this time until a message, or something else,
    /// ended it.
    pub(super) fn learn(&self, idle: Duration, by_message: bool) {
        if !by_message || idle >= SOON {
            return;
        }
        match self.skips.get() {
            0 => self.spins_next.set(true),
            skips => self.skips.set(skips - 1),
        }
    }

    fn fail(&self) {
        self.spins_next.set(false);
        let failures = (self.failures.get() + 1).min(MAX_DOUBLINGS);
        self.failures.set(failures);
        self.skips.set((1 << failures) / 2);
    }
}

impl Worker {
    /// Polls for a while, if the policy says so. True if there is work now.
    pub(super) fn spin(&self, idle_since: Instant) -> bool {
        if !self.spin_policy.spins_next.get() {
            return false;
        }
        loop {
            let now = self.now();
            if now - idle_since >= SPIN {
                break;
            }
            // The ring must be entered, a timer is due, or another worker has unstarted fibers.
            if self.alarms.are_due(now)
                || self.driver.borrow_mut().attention().1
                || self.shared.has_work_elsewhere(self.index)
            {
                return true;
            }
            for _ in 0..INBOX_CHECKS {
                if self.mailbox.inbox.has_messages() {
                    self.spin_policy.failures.set(0);
                    self.read_mail();
                    return true;
                }
                std::hint::spin_loop();
            }
        }
        self.spin_policy.fail();
        false
    }
}
