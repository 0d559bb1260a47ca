//! Locks that wait by raw system calls (**I14**).
//!
//! std's locks wait by libc's `syscall`, which a program may define: see [`sys`](super). The locks
//! here have the parts of std's types that the library needs. They know no poison: the code under
//! them does not panic. A thread that waits is blocked, so they are held for short, and never
//! across a suspension (**I6**).
//!
//! The algorithms are as in std's futex-based locks: Ulrich Drepper's "Futexes Are Tricky", and a
//! counter for the condition variable.

mod condvar;
mod futex;
#[cfg(all(test, loom))]
mod loom_tests;
mod mutex;
mod once_lock;
mod signal;

pub use condvar::Condvar;
pub use futex::OF_THE_LIBRARY;
#[cfg(debug_assertions)]
pub use mutex::held;
pub use mutex::{Mutex, MutexGuard};
pub use once_lock::OnceLock;
pub use signal::Signal;
