//! Files and directories, with the names and semantics of `std::fs`. Only the calling fiber waits.
//!
//! `Read`, `Write` and `Seek` are implemented for `File` and `&File`. Only std can implement them
//! for `Arc<File>`: use `&*file`.
//!
//! Outside of [`run`], and while a fiber unwinds, the same calls are plain system calls. The
//! Unix-specific functions and traits are in [`os::unix::fs`](crate::os::unix::fs), as in std. The
//! methods of `std::path::Path` that access the file system, such as `exists` and `metadata`, block
//! the worker: use the functions of this module.
//!
//! # Interrupted calls
//!
//! As std's functions, the functions of this module repeat a call that a signal interrupts
//! (`EINTR`). A file system in user space (FUSE) that answers `EINTR` for ever keeps the caller for
//! ever, there as here. Every other answer ends the call.
//!
//! # Direct I/O
//!
//! If the kernel refuses a read or write because the file is opened with `O_DIRECT` and the request
//! is not aligned, the error has std's kind (`InvalidInput`) and a message that says what is not
//! aligned. An [`io::Error`](std::io::Error) with a message has no `raw_os_error()`, where std's
//! has `EINVAL`; the kernel's error is its source:
//!
//! ```
//! use std::{error::Error, io};
//!
//! fn os_error(e: &io::Error) -> Option<i32> {
//!     let source = || e.source()?.downcast_ref::<io::Error>()?.raw_os_error();
//!     e.raw_os_error().or_else(source)
//! }
//! ```
//!
//! # Beyond std
//!
//! - [`Dir`]: paths that cannot leave a directory;
//! - [`statx`] and extended attributes ([`get_xattr`] and its siblings);
//! - the disk space of a file: [`File::allocate`], [`File::punch_hole`], [`File::seek_data`];
//! - flags of a single read or write: [`File::read_at_with`], [`File::write_at_with`];
//! - the page cache: [`File::advise`], [`File::sync_range`];
//! - copies within the kernel: [`copy_range`], [`File::reflink_from`];
//! - a rename that replaces nothing: [`rename_noreplace`].
//!
//! [`run`]: https://docs.rs/cringle/latest/cringle/fn.run.html

mod borrowed;
mod bounce;
mod convert;
mod copy;
mod create;
mod cursor;
mod device_hints;
mod dir;
mod dir_names;
pub(crate) mod fifo;
mod file;
mod flagged;
pub(crate) mod kernel_cursor;
pub(crate) mod linux;
mod listing;
mod lock;
mod metadata;
pub(crate) mod names;
mod open;
pub(crate) mod own_ops;
pub(crate) mod owner;
mod perform;
mod permissions;
mod read_dir;
mod remove;
mod resolve;
pub(crate) mod slow_device;
mod space;
mod stat;
mod times;
mod whole_file;
pub(crate) mod write_rest;
mod xattr;

pub use bounce::Direct;
pub(crate) use copy::{RANGE_BYTES, is_refused};
pub use copy::{copy, copy_range};
pub use create::{DirBuilder, create_dir, create_dir_all};
pub use device_hints::WriteLife;
pub use dir::Dir;
pub use file::File;
pub use flagged::{AtomicWriteLimits, ReadFlags, WriteFlags};
pub use lock::TryLockError;
pub use metadata::{FileType, Metadata};
#[expect(deprecated, reason = "it is in std")]
pub use names::soft_link;
pub use names::{
    canonicalize, hard_link, read_link, remove_dir, remove_file, rename, rename_noreplace,
};
pub use open::OpenOptions;
pub use permissions::set_permissions;
pub use read_dir::{DirEntry, ReadDir, read_dir};
pub use remove::remove_dir_all;
pub use space::Advice;
pub use stat::{exists, metadata, statx, symlink_metadata};
pub use std::fs::Permissions;
pub use times::{FileTimes, set_times, set_times_nofollow};
pub use whole_file::{read, read_to_string, write};
pub use xattr::{get_xattr, list_xattrs, remove_xattr, set_xattr};
