//! Locks and channels. One program, so that tests that wait do so side by side.

#[macro_use]
#[path = "../same/mod.rs"]
mod same;
#[path = "../tools/mod.rs"]
mod tools;

mod cancel;
mod channels;
mod locks;
mod same_sync;
mod watch;
