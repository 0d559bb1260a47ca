//! Files: cancels, trees, locks, shared cursors, by tests that run children.
//!
//! A child has every descriptor of the program for a moment, until it executes its own: the tests
//! that notice when the other end of a pipe or socket is closed are in the program `fs`.

mod bus_errors;
mod cancel;
mod device_hints;
mod same_cursors;
mod storage;
mod trees;
