//! The standard streams, with std's names, locks and buffering. Only the calling fiber waits.
//!
//! Their buffers are separate from std's. A program that uses both on one descriptor flushes one
//! before it writes to the other (`print!` writes to std's), and reads through only one of them.

/// `AsFd` and `AsRawFd` of the types of a standard stream.
macro_rules! standard_descriptor {
    ($fd:expr => $($name:ty),*) => {$(
        impl std::os::fd::AsFd for $name {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                // SAFETY: the contract of `borrow_raw`: std, too, treats the standard streams as
                // open for the life of the process.
                unsafe { std::os::fd::BorrowedFd::borrow_raw($fd) }
            }
        }

        impl std::os::fd::AsRawFd for $name {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                $fd
            }
        }
    )*};
}

mod input;
mod output;
mod raw;

pub use input::{Stdin, StdinLock, stdin};
pub use output::{Stderr, StderrLock, Stdout, StdoutLock, stderr, stdout};
