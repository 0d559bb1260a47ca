//! Files: `std::fs`'s names and semantics; only the calling fiber waits.
//!
//! Outside of [`run`](crate::run) the same calls are std's own, and so they are while a fiber
//! unwinds (**I8**).

mod cursor;
pub(crate) mod direct;
mod fifo;
mod file;
mod metadata;
mod open;

pub use file::File;
pub(crate) use file::perform_aside;
pub use metadata::{FileType, Metadata};
pub use open::OpenOptions;
pub use std::fs::Permissions;
