//! An [`ObjectStore`](object_store::ObjectStore) of local files, whose bytes go through io_uring.
//!
//! [`LocalStore`] can take the place of `object_store`'s own
//! [`LocalFileSystem`](object_store::local::LocalFileSystem): locations, entity tags, conditions,
//! staging files and errors are the same, and both may use one directory at the same time. The
//! difference is how bytes are read and written:
//!
//! - `get_ranges` merges neighbouring ranges, and reads all of them in batches through the ring of
//!   a [`BlockIo`](cringle::block::BlockIo), instead of one after the other.
//! - `get_opts` streams an object in chunks, of which two are read at once. A short range is read
//!   when the object is opened, with one wait for both.
//! - The parts of a multipart upload are written by fibers.
//! - Every future works on any executor, and none of these calls uses tokio's blocking threads;
//!   nor do `copy` and `rename`, which run on fibers. `list` and `delete` are those of
//!   `LocalFileSystem`, which uses tokio's blocking threads on tokio, and elsewhere blocks the
//!   caller.
//!
//! ```
//! use cringle_object_store::LocalStore;
//! use object_store::{ObjectStore, ObjectStoreExt, path::Path};
//!
//! # let directory = tempfile::tempdir().unwrap();
//! # let directory = directory.path();
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let store = LocalStore::new_with_prefix(directory)?;
//! let location = Path::from("log/day");
//! store.put(&location, "calm, wind from the west".into()).await?;
//! let words = store.get_ranges(&location, &[6..10, 0..4]).await?;
//! assert_eq!(words, ["wind", "calm"]);
//! # Ok::<(), object_store::Error>(())
//! # })?;
//! # Ok::<(), object_store::Error>(())
//! ```
//!
//! # Memory
//!
//! Besides its results, `get_ranges` holds at most 8 MiB of bytes that were not asked for or will
//! be copied, and a few hundred KiB of bookkeeping. Ranges that touch or overlap share a buffer, as
//! in `LocalFileSystem`, and so do short results, in buffers of at most 64 KiB. No result keeps
//! bytes in memory that its call did not ask for, except that the buffer of a result of 256 KiB or
//! more may be longer by a quarter. When these results are dropped, the store and its clones keep
//! the latest 16 MiB of their buffers for the next ones. A stream holds two chunks.
//! (`GetResult::bytes` copies the chunks of a long range into one buffer; `get_ranges` with that
//! range reads into one.)
//!
//! # Dropped futures
//!
//! A call that has started continues on its fiber if its future is dropped: a `put` is completed,
//! and a read ends after the batch in progress. Its buffers, descriptors and staging files are
//! released when it ends. An upload that is dropped, or whose creation was, removes its staging
//! file.
//!
//! # Differences from `LocalFileSystem`
//!
//! - The payload of a `GetResult` is a stream, never a file.
//! - A stream of a file that another process truncates ends with an error.
//! - A range that ends before it starts is an error, not a panic.
//! - If the completion of an upload fails, its staging file is removed.
//! - The parts of an upload may be written at the same time.
//! - A read of 256 KiB or more for which there is no memory is an error, and does not end the
//!   process.
//! - A call ends, whatever the file system answers. Where `open` says of a new file that it does
//!   not exist although its directory does, as in `/proc`, and on exfat for names that it refuses,
//!   `LocalFileSystem` tries for ever.
//! - File systems without hard links, as vfat and exfat, do. There a copy copies the bytes, and
//!   `PutMode::Create` and `copy_if_not_exists` need
//!   [`rename_noreplace`](cringle::fs::rename_noreplace); on a file system that has neither, they
//!   fail.
//! - `rename_if_not_exists` is one step, by `rename_noreplace`. File systems without it (NFS, FUSE
//!   servers without `rename2`) get a hard link, and then lose the old name. There the object has
//!   both names after a crash between the two; and if several calls rename one object to different
//!   names at once, one succeeds, but the names of the others may remain, too.
//! - Copies to another file system copy the bytes.
//! - `rename` onto a copy of the object removes the old name: `rename(2)` does nothing to two names
//!   of one file. (If another caller copies one of the names onto the other at the same time, the
//!   old name may remain.)
//! - FIFOs, devices and sockets are no objects, as in `list`: `get` returns `NotFound`, and does
//!   not wait for the writer of a FIFO.

#![forbid(unsafe_code)]

mod builder;
mod engine;
mod error;
mod memory;
mod meta;
mod names;
mod plan;
mod read;
mod staging;
mod store;
mod stream;
mod transfer;
mod upload;
mod write;

pub use builder::LocalStoreBuilder;
pub use store::LocalStore;
