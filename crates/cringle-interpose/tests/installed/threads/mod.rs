//! Threads that are fibers: std's and pthread's own calls, on both drivers.

mod cancel;
mod choice;
mod common;
mod exit;
mod kernel;
mod pthread;
mod spawned;
