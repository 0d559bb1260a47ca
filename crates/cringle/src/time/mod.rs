//! Time: waiting, and bounding how long others wait.

mod interval;
mod timeout;
mod wait;

pub use crate::runtime::cancelled::Elapsed;
pub use interval::{Interval, MissedTicks, interval, interval_at};
pub use timeout::{timeout, timeout_at};
pub use wait::{sleep, sleep_until};
