//! Processes: their children, signals, crashes and standard streams, and hosts that deny something.
//!
//! A child has every descriptor of the program for a moment, until it executes its own: a test that
//! notices when the other end of a pipe or socket is closed runs in a child itself.

mod attributes;
mod commands;
mod crash;
mod denied;
mod few_rings;
mod fork;
mod refused_threads;
mod same_commands;
mod signal;
mod stdio;
