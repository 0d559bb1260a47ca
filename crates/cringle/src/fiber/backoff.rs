//! Polling with growing pauses, for events that wake no fiber.

use crate::runtime::fiber::{FiberRef, Wait};
use crate::runtime::worker::Here;
use std::io;
use std::time::Duration;

/// The number of rounds that only yield: one of this worker's other fibers may cause the event.
const YIELDS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// The pauses of one wait, which grow up to [`LONGEST_PAUSE`].
#[derive(Default)]
pub(crate) struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Pauses before the next poll. Fails if the fiber is cancelled.
    pub(crate) fn pause(&mut self, worker: Here, fiber: FiberRef) -> io::Result<()> {
        if worker.refuses(fiber) {
            return Err(fiber.cancel_error());
        }
        if self.rounds < YIELDS {
            worker.yield_now(fiber);
        } else {
            let doublings = (self.rounds - YIELDS).min(16);
            let pause = (FIRST_PAUSE * (1 << doublings)).min(LONGEST_PAUSE);
            worker.suspend_until(fiber, Wait::Sleep, Some(worker.now() + pause));
        }
        self.rounds += 1;
        Ok(())
    }
}
