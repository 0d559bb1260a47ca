//! The drivers: both give the same results, also with the smallest queues, without features of the
//! ring, and under storms of signals and cancels.

mod driver_faults;
mod drivers_agree;
mod epoll;
#[cfg(feature = "raw")]
mod ring_raw;
mod waiting;
