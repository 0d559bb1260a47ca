//! Programs that cannot be started because a file descriptor is open for writing (`ETXTBSY`).
//!
//! The writer may have closed it already: a child that was forked meanwhile has a copy, until it
//! executes its own program. A fiber that waits in a call between its `open` and its `close` makes
//! that as frequent as many threads would. So a start is attempted again, a bounded number of
//! times.

use crate::fiber::backoff::Backoff;
use crate::runtime::fiber::FiberRef;
use crate::runtime::worker::Here;

/// The pauses before the start fails: 8 turns of the worker, and 12 sleeps of 63 ms altogether.
const PAUSES: u32 = 20;

/// Attempts to start a program until its result is not busy, or the fiber is cancelled.
pub(crate) fn repeat_while_busy<T>(
    worker: Here,
    fiber: FiberRef,
    is_busy: impl Fn(&T) -> bool,
    mut start: impl FnMut() -> T,
) -> T {
    let mut backoff = Backoff::default();
    for _ in 0..PAUSES {
        let started = start();
        if !is_busy(&started) || backoff.pause(worker, fiber).is_err() {
            return started;
        }
    }
    start()
}
