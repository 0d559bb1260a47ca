//! Options of a store.

use crate::engine::Engine;
use crate::error::Error;
use crate::read::Limits;
use crate::store::LocalStore;
use cringle::block::BlockIo;
use object_store::Result;
use object_store::local::LocalFileSystem;
use std::path::PathBuf;
use std::sync::Arc;

/// The most bytes between two ranges that one read fetches, unless the caller sets another number.
const GAP_BYTES: u64 = 4 << 10;
/// The length of the longest read of several ranges.
const LONGEST_BYTES: u64 = 1 << 20;
/// The length of the chunks of a stream, unless the caller sets another one.
const CHUNK_BYTES: usize = 1 << 20;

/// Options of a [`LocalStore`]: see [`LocalStore::builder`].
///
/// ```
/// use cringle_object_store::LocalStore;
///
/// let directory = tempfile::tempdir().unwrap();
/// let store = LocalStore::builder().prefix(directory.path()).fsync(true).build()?;
/// # Ok::<(), object_store::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "no store exists until `build` is called"]
pub struct LocalStoreBuilder {
    prefix: Option<PathBuf>,
    io: Option<Arc<BlockIo>>,
    automatic_cleanup: bool,
    fsync: bool,
    gap: u64,
    chunk_bytes: usize,
}

impl LocalStoreBuilder {
    pub(crate) fn new() -> LocalStoreBuilder {
        LocalStoreBuilder {
            prefix: None,
            io: None,
            automatic_cleanup: false,
            fsync: false,
            gap: GAP_BYTES,
            chunk_bytes: CHUNK_BYTES,
        }
    }

    /// Sets the directory that contains the objects. It must exist. The default is the root of the
    /// file system.
    ///
    /// ```
    /// let builder = cringle_object_store::LocalStore::builder().prefix("/srv/objects");
    /// ```
    pub fn prefix(mut self, directory: impl Into<PathBuf>) -> LocalStoreBuilder {
        self.prefix = Some(directory.into());
        self
    }

    /// Sets the workers that read and write. Several stores may share them, and other users of the
    /// `BlockIo`. By default the store starts one worker of its own.
    ///
    /// ```
    /// use cringle::block::BlockIo;
    /// use cringle_object_store::LocalStore;
    /// use std::sync::Arc;
    ///
    /// let io = Arc::new(BlockIo::builder().workers(2).build().unwrap());
    /// let store = LocalStore::builder().block_io(io).build()?;
    /// # Ok::<(), object_store::Error>(())
    /// ```
    pub fn block_io(mut self, io: Arc<BlockIo>) -> LocalStoreBuilder {
        self.io = Some(io);
        self
    }

    /// Sets whether deleting an object also deletes the directories that are empty then. The
    /// default is `false`.
    ///
    /// ```
    /// let builder = cringle_object_store::LocalStore::builder().automatic_cleanup(true);
    /// ```
    pub fn automatic_cleanup(mut self, cleanup: bool) -> LocalStoreBuilder {
        self.automatic_cleanup = cleanup;
        self
    }

    /// Sets whether objects and their names are durable when the call that wrote them returns, as
    /// [`LocalFileSystem::with_fsync`]. The default is `false`.
    ///
    /// ```
    /// let builder = cringle_object_store::LocalStore::builder().fsync(true);
    /// ```
    pub fn fsync(mut self, fsync: bool) -> LocalStoreBuilder {
        self.fsync = fsync;
        self
    }

    /// Sets the most bytes between two ranges that one read of `get_ranges` fetches. They are read
    /// and dropped. The default is 4 KiB: skipping less saves no time.
    ///
    /// ```
    /// let builder = cringle_object_store::LocalStore::builder().coalesce_gap(64 << 10);
    /// ```
    pub fn coalesce_gap(mut self, bytes: u64) -> LocalStoreBuilder {
        self.gap = bytes;
        self
    }

    /// Sets the length of the chunks in which `get_opts` streams an object. Two of them are read at
    /// once. The default is 1 MiB; 0 means 1.
    ///
    /// ```
    /// let builder = cringle_object_store::LocalStore::builder().chunk_bytes(64 << 10);
    /// ```
    pub fn chunk_bytes(mut self, bytes: usize) -> LocalStoreBuilder {
        self.chunk_bytes = bytes.max(1);
        self
    }

    /// Returns the store, and starts its worker unless it was given one.
    ///
    /// ```
    /// use cringle_object_store::LocalStore;
    ///
    /// let error = LocalStore::builder().prefix("/nowhere").build().unwrap_err();
    /// assert!(error.to_string().contains("/nowhere"));
    /// ```
    ///
    /// # Errors
    ///
    /// If the prefix does not exist, or a worker cannot start: see
    /// [`BlockIoBuilder::build`](cringle::block::BlockIoBuilder::build).
    pub fn build(self) -> Result<LocalStore> {
        let files = match self.prefix {
            Some(prefix) => LocalFileSystem::new_with_prefix(prefix)?,
            None => LocalFileSystem::new(),
        };
        let files = files.with_automatic_cleanup(self.automatic_cleanup).with_fsync(self.fsync);
        let io = match self.io {
            Some(io) => io,
            None => {
                let io = BlockIo::builder().build().map_err(|source| Error::Start { source })?;
                Arc::new(io)
            }
        };
        let limits = Limits { gap: self.gap, longest: LONGEST_BYTES };
        let flags = (self.fsync, self.automatic_cleanup);
        Ok(LocalStore::from_parts(files, Engine::new(io), flags, limits, self.chunk_bytes))
    }
}
