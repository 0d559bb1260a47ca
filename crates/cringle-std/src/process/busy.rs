//! Programs that cannot be started because a file descriptor is open for writing (`ETXTBSY`).
//!
//! The writer may have closed it already: a child that was forked meanwhile has a copy, until it
//! executes its own program. A fiber that waits in a call between its `open` and its `close` makes
//! that as frequent as many threads would. So a start is attempted again, a bounded number of
//! times.

use crate::fiber::backoff::Backoff;
use cringle_core::worker::Current;

/// The pauses before the start fails: 8 turns of the worker, and 12 sleeps of 63 ms altogether.
const PAUSES: u32 = 20;

/// Attempts to start a program until it is not busy, or the fiber is cancelled.
///
/// An attempt has effects, which may fail the next one: an action that creates a file does not find
/// it absent twice. So if an attempt after a busy one fails otherwise, the program was busy.
pub fn repeat_while_busy<T, E>(
    current: Current,
    is_busy: impl Fn(&E) -> bool,
    mut start: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let mut backoff = Backoff::default();
    let mut busy = None;
    for _ in 0..PAUSES {
        match start() {
            Err(e) if is_busy(&e) => {
                if backoff.pause(current).is_err() {
                    return Err(e);
                }
                busy = Some(e);
            }
            result => return result.map_err(|e| busy.unwrap_or(e)),
        }
    }
    start().map_err(|e| busy.unwrap_or(e))
}
