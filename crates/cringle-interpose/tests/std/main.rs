//! std's own calls on fibers: each waits only its fiber, on both drivers.

cringle_interpose::install!();

mod calls;
mod closed;
mod common;
mod connections;
mod ended;
mod files;
mod futexes;
mod handlers;
mod held;
mod locks;
mod modes;
mod pthread;
mod same;
mod shared;
mod sockets;
mod threads;
mod time;
mod whole;
