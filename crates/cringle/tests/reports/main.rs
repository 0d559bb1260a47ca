//! What the library reports of a program: dumps, counters, traces, events, hazards, panics.
//!
//! A child has every descriptor of the program for a moment, until it executes its own: a test that
//! notices when the other end of a pipe or socket is closed runs in a child itself.

mod detect;
mod dump;
mod panic_message;
#[cfg(feature = "tracing")]
mod spans;
mod stats;
mod stderr_reports;
mod stderr_stuck;
mod trace;
