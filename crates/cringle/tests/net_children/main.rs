//! Servers and TCP, by tests that run children.
//!
//! A child has every descriptor of the program for a moment, until it executes its own: the tests
//! that notice when the other end of a pipe or socket is closed are in the program `net`.

mod server;
mod tcp;
