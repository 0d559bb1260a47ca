//! Sockets and pipes. One program, so that tests that wait do so side by side.

mod foreign_crates;
mod local;
mod messages;
mod observations;
mod pipes;
mod ready;
mod same_net;
mod std_programs;
mod zero_copy;
