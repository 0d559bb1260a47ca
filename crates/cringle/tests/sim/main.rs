//! The simulation: the same library in virtual time, over files in memory, with faults; the same
//! seed gives the same run.
#![cfg(feature = "sim")]

mod bounce;
mod log;
mod syncs;
mod workers;
mod world;
