//! Time: waiting, bounding how long others wait, and the clock for both, which a simulation turns.
//!
//! The types are std's. In a simulation [`now`] is the time that waits go by; `Instant::now` is the machine's.

mod clock;
mod interval;
mod timeout;
mod wait;

pub use crate::runtime::cancelled::Elapsed;
pub use clock::now;
pub use interval::{Interval, MissedTicks, interval, interval_at};
pub use std::time::{
    Duration, Instant, SystemTime, SystemTimeError, TryFromFloatSecsError, UNIX_EPOCH,
};
pub use timeout::{timeout, timeout_at};
pub use wait::{sleep, sleep_until};
