//! Time: sleeping, deadlines, ticks, and the clock that they use, which a simulation controls.
//!
//! The types are std's. In a simulation [`now`] returns the virtual time of timers, and
//! `Instant::now` the machine's time.
//!
//! ```
//! use cringle::{fs, time};
//! use std::time::Duration;
//!
//! cringle::run(|| {
//!     time::timeout(Duration::from_secs(5), || fs::read("/proc/self/cmdline")).map(drop)
//! })?;
//! # std::io::Result::Ok(())
//! ```

mod clock;
mod interval;
mod timeout;
mod wait;

pub use clock::now;
pub use cringle_core::cancelled::Elapsed;
pub use interval::{Interval, MissedTicks, interval, interval_at};
pub use std::time::{
    Duration, Instant, SystemTime, SystemTimeError, TryFromFloatSecsError, UNIX_EPOCH,
};
pub use timeout::{timeout, timeout_at, try_timeout, try_timeout_at};
pub use wait::{sleep, sleep_until};
