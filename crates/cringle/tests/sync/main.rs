//! Locks and channels. One program, so that tests that wait do so side by side.

mod cancel;
mod channels;
mod locks;
mod same_sync;
mod watch;
