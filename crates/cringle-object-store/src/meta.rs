//! What `object_store` reports of a file.

use crate::error::Error;
use cringle::fs::{File, Metadata};
use object_store::ObjectMeta;
use object_store::path::Path as Location;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Opens an object, and looks up its metadata. A directory is no object.
pub(crate) fn open(path: &Path, location: Location) -> Result<(File, ObjectMeta), Error> {
    let file = File::open(path).map_err(Error::open(path))?;
    let metadata = file.metadata().map_err(Error::open(path))?;
    if metadata.is_dir() {
        let source = io::Error::new(io::ErrorKind::NotFound, "it is a directory");
        return Err(Error::NotFound { path: path.into(), source });
    }
    let modified = metadata.modified().map_err(Error::io("get its metadata", path))?;
    let meta = ObjectMeta {
        location,
        last_modified: modified.into(),
        size: metadata.len(),
        e_tag: Some(e_tag(&metadata)),
        version: None,
    };
    Ok((file, meta))
}

/// Returns the entity tag that `LocalFileSystem` gives to the file, so that the tags of either
/// store are valid conditions for the other.
pub(crate) fn e_tag(metadata: &Metadata) -> String {
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let micros = modified.unwrap_or_default().as_micros();
    format!("\"{:x}-{micros:x}-{:x}\"", metadata.ino(), metadata.len())
}
