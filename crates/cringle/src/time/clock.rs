//! The clock.

use std::time::Instant;

/// The time now, as the timers of the calling fiber count it: in a simulation the virtual time,
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
    crate::runtime::now()
}
