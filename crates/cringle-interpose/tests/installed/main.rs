//! A program with `install!`: std's and libc's own calls suspend only their fiber, on both drivers,
//! and threads are fibers where that is chosen.

cringle_interpose::install!();

mod calls;
mod closed;
mod common;
mod connections;
mod ended;
mod file_size_limit;
mod files;
mod futexes;
mod handlers;
mod held;
mod locks;
mod modes;
mod off_fibers;
mod owners;
mod pthread;
mod same;
mod shared;
mod sockets;
mod threads;
mod time;
mod whole;
