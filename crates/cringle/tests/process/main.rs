//! Processes: their children, signals, standard streams, and hosts that deny them something.
//!
//! A child has every descriptor of the program for a moment, until it executes its own: a test that
//! notices when the other end of a pipe or socket is closed runs in a child itself.

mod attributes;
mod commands;
mod denied;
mod fork;
mod same_commands;
mod signal;
mod stdio;
