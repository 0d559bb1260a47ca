//! Files, mappings, servers and TCP, by tests that run children, or use up descriptors.
//!
//! A child has every descriptor of the program for a moment, until it executes its own: the tests
//! that notice when the other end of a pipe or socket is closed, or a lock released, are in the
//! programs `fs` and `net`.

mod bus_errors;
mod cancel;
mod device_hints;
mod log_reopened;
mod mapped;
mod same_cursors;
mod server;
mod storage;
mod tcp;
mod trees;
