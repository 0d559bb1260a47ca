//! Sleeping, as an operation that fails when the fiber is cancelled.

use crate::fiber::park::sleep_till_cancellable;
use std::io;
use std::time::{Duration, Instant};

/// Sleeps for at least `duration`. Only the calling fiber waits.
/// [`fiber::sleep`](crate::fiber::sleep) has std's signature, which cannot return an error.
/// May suspend the calling fiber.
///
/// ```
/// use cringle::time;
/// use std::time::Duration;
///
/// cringle::run(|| time::sleep(Duration::from_millis(1))).unwrap();
/// ```
///
/// # Errors
///
/// If the fiber was cancelled first: see [`cancel::reason`](crate::cancel::reason).
pub fn sleep(duration: Duration) -> io::Result<()> {
    crate::fiber::sleep_cancellable(duration)
}

/// Sleeps until `at`. Only the calling fiber waits.
/// May suspend the calling fiber.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::time;
/// use std::time::{Duration, Instant};
///
/// cringle::run(|| {
///     let at = Instant::now() + Duration::from_millis(1);
///     time::sleep_until(at)?;
///     assert!(Instant::now() >= at);
///     Ok(())
/// })
/// # }
/// ```
///
/// # Errors
///
/// If the fiber was cancelled first: see [`cancel::reason`](crate::cancel::reason).
pub fn sleep_until(at: Instant) -> io::Result<()> {
    sleep_till_cancellable(Some(at))
}
