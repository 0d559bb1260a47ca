//! Stackful fibers over one `io_uring` per core, in the shape of std.

#[cfg(not(target_os = "linux"))]
compile_error!("cringle stands on io_uring and epoll: it is for Linux only");
#[cfg(not(target_pointer_width = "64"))]
compile_error!("cringle needs a 64-bit address space: fibers' stacks are mapped by the mebibyte");

pub mod block;
mod driver;
pub mod fiber;
pub mod fs;
pub mod io;
pub mod os;
#[cfg(feature = "raw")]
pub mod ring;
pub mod runtime;
mod sys;

pub use runtime::cancelled::Cancelled;
pub use runtime::run::{Builder, run};
