//! Random programs: what they do in simulations, on the ring and on epoll, and what a simulated run
//! leaves behind.

mod memory;
mod outcomes;
