//! Polling with growing pauses, for events that wake no fiber.

use cringle_core::fiber::Wait;
use cringle_core::worker::Current;
use std::io;
use std::time::Duration;

/// The number of rounds that only yield: one of this worker's other fibers may cause the event.
const YIELDS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// The pauses of one wait, which grow up to `LONGEST_PAUSE`.
#[derive(Default)]
pub struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Pauses before the next poll. Fails if the fiber is cancelled.
    pub fn pause(&mut self, current: Current) -> io::Result<()> {
        current.admit()?;
        if self.rounds < YIELDS {
            current.yield_now();
        } else {
            let doublings = (self.rounds - YIELDS).min(16);
            let pause = (FIRST_PAUSE * (1 << doublings)).min(LONGEST_PAUSE);
            current.suspend_until(Wait::Sleep, Some(current.worker.now() + pause));
        }
        self.rounds += 1;
        Ok(())
    }
}
