//! The metadata of an open file, and what `object_store` reports of it.

use crate::error::Error;
use cringle::fs::File;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{FileStat, SFlag, fstat};
use object_store::ObjectMeta;
use object_store::path::Path as Location;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
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

/// Opens a regular file or a directory for reading. It refuses other files, because `open` waits
/// for the writer of a FIFO, and reads of terminals wait for input.
pub(crate) fn open_file(path: &Path) -> Result<(File, Metadata), Error> {
    let mut options = File::options();
    let opened = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
    let opened = match opened {
        // Another process holds a lease on the file. This waits for its release.
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => File::open(path),
        opened => opened,
    };
    let file = opened.map_err(Error::open(path))?;
    let metadata = Metadata::of(&file).map_err(Error::open(path))?;
    if !metadata.is_file() && !metadata.is_dir() {
        let source = io::Error::new(io::ErrorKind::NotFound, "it is not a regular file");
        return Err(Error::NotFound { path: path.into(), source });
    }
    // With `O_NONBLOCK` a ring assumes that reads do not wait, and starts them on its worker. On
    // some file systems they wait.
    fcntl(&file, FcntlArg::F_SETFL(OFlag::empty())).map_err(|e| Error::open(path)(e.into()))?;
    Ok((file, metadata))
}

/// Opens an object, and looks up its metadata. A directory is no object.
pub(crate) fn open(path: &Path, location: Location) -> Result<(File, ObjectMeta), Error> {
    let (file, metadata) = open_file(path)?;
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
