//! Files and directories: `std::fs`'s names and semantics; only the calling fiber waits.
//!
//! `Read`, `Write` and `Seek` are implemented for `File` and `&File`, but not for `Arc<File>`, for which only std may
//! implement them: use `&*file`.
//!
//! Outside of [`run`](crate::run) the same calls are plain system calls, and so they are while a fiber
//! unwinds (**I8**). What is particular to Unix is in [`os::unix::fs`](crate::os::unix::fs), as std's.
//! `std::path::Path`'s own `exists`, `metadata` and their like are std's: they block the worker; use the
//! functions here.
//!
//! A read or write that the kernel refuses because the file is opened with `O_DIRECT` and the request is not
//! aligned fails with the kind that std has (`InvalidInput`), and its text says what is not aligned. An
//! [`io::Error`](std::io::Error) with a text has no number, so its `raw_os_error()` is `None`, where std's is
//! `EINVAL`. The kernel's error is its source:
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
//! Beyond std: [`Dir`] (paths that cannot leave a directory), [`statx`], extended attributes, and of a
//! [`File`] its space (`allocate`, `punch_hole`, `seek_data`), its place in the page cache (`advise`,
//! `sync_range`), and copies within the kernel ([`copy_range`], `clone_from_range`).

mod convert;
mod copy;
mod create;
mod cursor;
mod dir;
mod dir_names;
mod fifo;
mod file;
pub(crate) mod kernel_cursor;
pub(crate) mod linux;
mod listing;
mod lock;
mod metadata;
pub(crate) mod misaligned;
pub(crate) mod names;
mod open;
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

pub(crate) use copy::{RANGE_BYTES, is_refused};
pub use copy::{copy, copy_range};
pub use create::{DirBuilder, create_dir, create_dir_all};
pub use dir::Dir;
pub use file::File;
pub use lock::TryLockError;
pub use metadata::{FileType, Metadata};
#[expect(deprecated, reason = "it is in std")]
pub use names::soft_link;
pub use names::{canonicalize, hard_link, read_link, remove_dir, remove_file, rename};
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
