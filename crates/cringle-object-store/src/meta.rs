//! The metadata of an open file, and what `object_store` reports of it.

use crate::error::Error;
use cringle::fs::File;
use nix::sys::stat::{FileStat, SFlag, fstat};
use object_store::ObjectMeta;
use object_store::path::Path as Location;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The metadata of an open file.
pub(crate) struct Metadata(FileStat);

impl Metadata {
    /// Looks it up by a plain call, which does not wait: the kernel has the inode of an open file
    /// in memory. A ring would hand the op to a kernel thread.
    pub(crate) fn of(file: &File) -> io::Result<Metadata> {
        Ok(Metadata(fstat(file)?))
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.st_size as u64
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.is(SFlag::S_IFDIR)
    }

    pub(crate) fn is_file(&self) -> bool {
        self.is(SFlag::S_IFREG)
    }

    fn is(&self, kind: SFlag) -> bool {
        SFlag::from_bits_truncate(self.0.st_mode) & SFlag::S_IFMT == kind
    }

    fn modified(&self) -> SystemTime {
        let seconds = Duration::from_secs(self.0.st_mtime.unsigned_abs());
        let whole = match self.0.st_mtime < 0 {
            true => UNIX_EPOCH - seconds,
            false => UNIX_EPOCH + seconds,
        };
        whole + Duration::from_nanos(self.0.st_mtime_nsec as u64)
    }

    /// Returns the entity tag that `LocalFileSystem` gives to the file, so that the tags of either
    /// store are valid conditions for the other.
    pub(crate) fn e_tag(&self) -> String {
        let modified = self.modified().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("\"{:x}-{:x}-{:x}\"", self.0.st_ino, modified.as_micros(), self.len())
    }
}

/// Opens an object, and looks up its metadata. A directory is no object.
pub(crate) fn open(path: &Path, location: Location) -> Result<(File, ObjectMeta), Error> {
    let file = File::open(path).map_err(Error::open(path))?;
    let metadata = Metadata::of(&file).map_err(Error::open(path))?;
    if metadata.is_dir() {
        let source = io::Error::new(io::ErrorKind::NotFound, "it is a directory");
        return Err(Error::NotFound { path: path.into(), source });
    }
    let meta = ObjectMeta {
        location,
        last_modified: metadata.modified().into(),
        size: metadata.len(),
        e_tag: Some(metadata.e_tag()),
        version: None,
    };
    Ok((file, meta))
}
