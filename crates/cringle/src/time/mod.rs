//! Time: waiting, bounding how long others wait, and the clock for both, which a simulation turns.

mod clock;
mod interval;
mod timeout;
mod wait;

pub use crate::runtime::cancelled::Elapsed;
pub use clock::now;
pub use interval::{Interval, MissedTicks, interval, interval_at};
pub use timeout::{timeout, timeout_at};
pub use wait::{sleep, sleep_until};
