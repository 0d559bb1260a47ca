//! The store: bytes go through the engine, names through `LocalFileSystem`.

use crate::builder::LocalStoreBuilder;
use crate::engine::Engine;
use crate::error::Error;
use crate::memory::Spares;
use crate::meta::{self, Metadata};
use crate::read::{IsWanted, Limits, check_ranges, read_range, read_ranges};
use crate::staging::{Publish, Staging};
use crate::stream::chunks;
use crate::transfer::Transfer;
use crate::upload::Upload;
use crate::write::write_payload;
use async_trait::async_trait;
use bytes::Bytes;
use cringle::fs::File;
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    RenameOptions, RenameTargetMode, Result,
};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// The longest range that is read when it is opened, which saves the caller a wait.
const AT_ONCE_BYTES: usize = 64 << 10;

/// An [`ObjectStore`] of local files, which reads and writes through io_uring. See the
/// [crate](crate).
///
/// ```
/// use cringle_object_store::LocalStore;
/// use object_store::{ObjectStoreExt, path::Path};
///
/// # futures_executor::block_on(async {
/// let directory = tempfile::tempdir().unwrap();
/// let store = LocalStore::new_with_prefix(directory.path())?;
/// let location = Path::from("knots/bowline");
/// store.put(&location, "around the tree".into()).await?;
/// assert_eq!(store.get_range(&location, 11..15).await?, "tree");
/// # Ok::<(), object_store::Error>(())
/// # })?;
/// # Ok::<(), object_store::Error>(())
/// ```
///
/// Clones share the workers, which end when the last clone is dropped and every future, stream and
/// upload of theirs. That waits for the operations in progress.
#[derive(Clone, Debug)]
pub struct LocalStore {
    files: LocalFileSystem,
    engine: Engine,
    fsync: bool,
    automatic_cleanup: bool,
    limits: Limits,
    chunk_bytes: usize,
    spares: Spares,
}

impl LocalStore {
    /// Returns a store of the whole file system: the location `etc/fstab` is the file `/etc/fstab`.
    ///
    /// ```
    /// let store = cringle_object_store::LocalStore::new()?;
    /// # Ok::<(), object_store::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`LocalStoreBuilder::build`].
    pub fn new() -> Result<LocalStore> {
        LocalStore::builder().build()
    }

    /// Returns a store of the files below a directory, which must exist.
    ///
    /// ```
    /// let store = cringle_object_store::LocalStore::new_with_prefix("/usr")?;
    /// # Ok::<(), object_store::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`LocalStoreBuilder::build`].
    pub fn new_with_prefix(prefix: impl Into<PathBuf>) -> Result<LocalStore> {
        LocalStore::builder().prefix(prefix).build()
    }

    /// Returns a builder with the defaults.
    ///
    /// ```
    /// use cringle_object_store::LocalStore;
    ///
    /// let store = LocalStore::builder().prefix("/usr").coalesce_gap(0).build()?;
    /// # Ok::<(), object_store::Error>(())
    /// ```
    pub fn builder() -> LocalStoreBuilder {
        LocalStoreBuilder::new()
    }

    /// Returns the path of the file with this location.
    ///
    /// ```
    /// use cringle_object_store::LocalStore;
    ///
    /// let store = LocalStore::new()?;
    /// assert_eq!(store.path_to_filesystem(&"etc/fstab".into())?.to_str(), Some("/etc/fstab"));
    /// # Ok::<(), object_store::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the location ends in `#` and digits, as the names of staging files.
    pub fn path_to_filesystem(&self, location: &Path) -> Result<PathBuf> {
        self.files.path_to_filesystem(location)
    }

    pub(crate) fn from_parts(
        files: LocalFileSystem,
        engine: Engine,
        (fsync, automatic_cleanup): (bool, bool),
        limits: Limits,
        chunk_bytes: usize,
    ) -> LocalStore {
        let spares = Spares::default();
        LocalStore { files, engine, fsync, automatic_cleanup, limits, chunk_bytes, spares }
    }

    fn transfer(&self, from: &Path, to: &Path, how: Publish) -> Result<Transfer> {
        Ok(Transfer {
            from: self.files.path_to_filesystem(from)?,
            to: self.files.path_to_filesystem(to)?,
            how,
            engine: self.engine.clone(),
            fsync: self.fsync,
        })
    }

    fn not_implemented<T>(&self, operation: &str) -> Result<T> {
        let (operation, implementer) = (operation.into(), self.to_string());
        Err(object_store::Error::NotImplemented { operation, implementer })
    }
}

/// Where the chunks of a stream are from.
enum Source {
    File(File),
    Bytes(std::result::Result<Bytes, Error>),
}

impl std::fmt::Display for LocalStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalStore({})", self.files)
    }
}

#[async_trait]
impl ObjectStore for LocalStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let how = match opts.mode {
            PutMode::Overwrite => Publish::Replace,
            PutMode::Create => Publish::Create,
            PutMode::Update(_) => {
                return self.not_implemented("`put_opts` with `PutMode::Update`");
            }
        };
        if !opts.attributes.is_empty() {
            return self.not_implemented("`put_opts` with attributes");
        }
        let dest = self.files.path_to_filesystem(location)?;
        let (engine, fsync) = (self.engine.clone(), self.fsync);
        let put = move |_: IsWanted<'_>| {
            let (mut staging, file) = Staging::create(&dest, engine, fsync)?;
            let written = write_payload(&file, &payload, 0).and_then(|()| Metadata::of(&file));
            if written.is_err() {
                drop(staging.remove());
            }
            let metadata = written.map_err(Error::io("write it", &dest))?;
            staging.publish(file, &dest, how, fsync)?;
            Ok(PutResult {
                e_tag: Some(metadata.e_tag()),
                version: None,
                extensions: Default::default(),
            })
        };
        self.engine.run(put).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if !opts.attributes.is_empty() {
            return self.not_implemented("`put_multipart_opts` with attributes");
        }
        let dest = self.files.path_to_filesystem(location)?;
        let (engine, fsync) = (self.engine.clone(), self.fsync);
        let upload = self.engine.run(move |_| Upload::create(engine, dest, fsync)).await?;
        Ok(Box::new(upload))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let path: Arc<std::path::Path> = self.files.path_to_filesystem(location)?.into();
        let (opened, location) = (Arc::clone(&path), location.clone());
        let spares = self.spares.clone();
        let at_once = (AT_ONCE_BYTES.min(self.chunk_bytes)) as u64;
        let open = move |is_wanted: IsWanted<'_>| {
            let (file, meta) = meta::open(&opened, location)?;
            options.check_preconditions(&meta)?;
            let range = match options.range {
                None => 0..meta.size,
                Some(range) => range.as_range(meta.size).map_err(|source| Error::Range {
                    path: opened.to_path_buf(),
                    source: source.into(),
                })?,
            };
            let is_short = !options.head && range.end - range.start <= at_once;
            let source = match is_short {
                true => {
                    Source::Bytes(read_range(&file, &opened, range.clone(), &spares, is_wanted))
                }
                false => Source::File(file),
            };
            Ok((source, meta, range))
        };
        let (source, meta, range) = self.engine.run(open).await?;
        let stream = match source {
            Source::Bytes(bytes) => stream::iter([bytes.map_err(Into::into)]).boxed(),
            Source::File(file) => {
                let (engine, file) = (self.engine.clone(), Arc::new(file));
                chunks(engine, file, path, (range.clone(), self.chunk_bytes), self.spares.clone())
            }
        };
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream),
            meta,
            range,
            attributes: Default::default(),
            extensions: Default::default(),
        })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let path = self.files.path_to_filesystem(location)?;
        let (ranges, limits, spares) = (ranges.to_vec(), self.limits, self.spares.clone());
        let read = move |is_wanted: IsWanted<'_>| {
            let (file, _) = meta::open_file(&path)?;
            check_ranges(&path, &ranges)?;
            Ok(read_ranges(&file, &path, &ranges, limits, &spares, is_wanted)?)
        };
        self.engine.run(read).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.files.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let how = match options.mode {
            CopyMode::Overwrite => Publish::Replace,
            CopyMode::Create => Publish::Create,
        };
        let transfer = self.transfer(from, to, how)?;
        self.engine.run(move |_| Ok(transfer.copy()?)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let how = match options.target_mode {
            RenameTargetMode::Overwrite => Publish::Replace,
            RenameTargetMode::Create => Publish::Create,
        };
        let cleanup =
            if self.automatic_cleanup { from.parts().count().saturating_sub(1) } else { 0 };
        let transfer = self.transfer(from, to, how)?;
        self.engine.run(move |_| Ok(transfer.rename(cleanup)?)).await
    }
}
