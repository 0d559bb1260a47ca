//! `cringle-object-store` for DataFusion. The example is in `examples/`, its test is in `tests/`.
//!
//! DataFusion 55 uses `object_store` 0.13, and `cringle-object-store` 0.14, whose trait is another
//! type. [`Store`] translates. Once DataFusion uses 0.14, a `LocalStore` needs no wrapper.

use async_trait::async_trait;
use cringle_object_store::LocalStore;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use futures_util::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store as new;
use object_store::ObjectStore as _;
use std::fmt;
use std::ops::Range;

/// A [`LocalStore`] for DataFusion 55. Reads use the ring; lists, which are `LocalFileSystem`'s in
/// either store, and writes use the `LocalFileSystem` of the old version.
#[derive(Debug)]
pub struct Store {
    reads: LocalStore,
    others: LocalFileSystem,
}

impl Store {
    /// Returns a store of what `reads` and `others` contain. Both must have the same prefix.
    pub fn new(reads: LocalStore, others: LocalFileSystem) -> Store {
        Store { reads, others }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reads.fmt(f)
    }
}

fn location(location: &Path) -> Result<new::path::Path> {
    new::path::Path::parse(location).map_err(|e| error(e.into()))
}

fn error(error: new::Error) -> Error {
    match error {
        new::Error::NotFound { path, source } => Error::NotFound { path, source },
        new::Error::Precondition { path, source } => Error::Precondition { path, source },
        new::Error::NotModified { path, source } => Error::NotModified { path, source },
        new::Error::PermissionDenied { path, source } => Error::PermissionDenied { path, source },
        other => Error::Generic { store: "LocalStore", source: other.into() },
    }
}

fn options(old: GetOptions) -> new::GetOptions {
    let range = old.range.map(|range| match range {
        GetRange::Bounded(range) => new::GetRange::Bounded(range),
        GetRange::Offset(offset) => new::GetRange::Offset(offset),
        GetRange::Suffix(bytes) => new::GetRange::Suffix(bytes),
    });
    new::GetOptions {
        if_match: old.if_match,
        if_none_match: old.if_none_match,
        if_modified_since: old.if_modified_since,
        if_unmodified_since: old.if_unmodified_since,
        range,
        version: old.version,
        head: old.head,
        ..Default::default()
    }
}

#[async_trait]
impl ObjectStore for Store {
    async fn get_opts(&self, path: &Path, old: GetOptions) -> Result<GetResult> {
        let got = self.reads.get_opts(&location(path)?, options(old)).await.map_err(error)?;
        let meta = ObjectMeta {
            location: path.clone(),
            last_modified: got.meta.last_modified,
            size: got.meta.size,
            e_tag: got.meta.e_tag.clone(),
            version: got.meta.version.clone(),
        };
        let range = got.range.clone();
        let payload = GetResultPayload::Stream(got.into_stream().map_err(error).boxed());
        Ok(GetResult { payload, meta, range, attributes: Default::default() })
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<bytes::Bytes>> {
        self.reads.get_ranges(&location(path)?, ranges).await.map_err(error)
    }

    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.others.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.others.put_multipart_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.others.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.others.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.others.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.others.copy_opts(from, to, options).await
    }
}
