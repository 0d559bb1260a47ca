//! Waiting for a time, as operations that fail when the fiber is cancelled.

use crate::fiber::sleep_till_cancellable;
use std::io;
use std::time::{Duration, Instant};

/// Waits for at least this long; only the calling fiber does. [`fiber::sleep`](crate::fiber::sleep) is
/// std's, which has no room for an error.
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
/// The fiber was cancelled first: see [`cancel::reason`](crate::cancel::reason).
pub fn sleep(duration: Duration) -> io::Result<()> {
    crate::fiber::sleep_cancellable(duration)
}

/// Waits until this time; only the calling fiber does.
/// May suspend the calling fiber.
///
/// ```
/// use cringle::time;
/// use std::time::{Duration, Instant};
///
/// cringle::run(|| {
///     let at = Instant::now() + Duration::from_millis(1);
///     time::sleep_until(at)?;
///     assert!(Instant::now() >= at);
///     Ok::<(), std::io::Error>(())
/// })
/// .unwrap();
/// ```
///
/// # Errors
///
/// The fiber was cancelled first: see [`cancel::reason`](crate::cancel::reason).
pub fn sleep_until(at: Instant) -> io::Result<()> {
    sleep_till_cancellable(Some(at))
}
