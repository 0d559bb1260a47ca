//! The clock.

use std::time::Instant;

/// Returns the current time of the clock that timers use: in a simulation the virtual time,
/// elsewhere `std::time::Instant::now()`. Code that measures with it can be tested in virtual time.
///
/// ```
/// use cringle::{fiber, time};
/// use std::time::Duration;
///
/// cringle::run(|| {
///     let start = time::now();
///     fiber::sleep(Duration::from_millis(1));
///     assert!(time::now() - start >= Duration::from_millis(1));
/// });
/// ```
pub fn now() -> Instant {
    cringle_core::now()
}
