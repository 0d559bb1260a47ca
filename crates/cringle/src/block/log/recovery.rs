//! Opening a log: finds its end, cuts a torn group, and makes the rest durable.
//!
//! Groups are written one after the other, each after the sync of the one before. So after a crash
//! only the last group can be torn, in any of its sectors. A frame behind the first damaged one
//! shows which it is: if its group begins behind the damage, then the damaged record was synced
//! before that group was written, and was lost later. A group begins in the sector in which the one
//! before ends, whose bytes it does not change: sectors are assumed to be written as a whole.
//!
//! A record that is read may be in the page cache only: the process may have ended before the
//! sync, or the sync may have failed, after which the kernel holds the pages for clean and writes
//! them no more. Only the last group can be in that state. So the cache is dropped before anything
//! is read, as far as the kernel does that. The last group is written again, which makes its pages
//! dirty, and synced, before the log is open.
//!
//! To write again would not suffice on ext4: if the write of new blocks has failed, they keep their
//! mark of being unwritten, and a second write by the same cached pages does not remove it. That
//! write and the next sync succeed, but later the blocks are read as zeros.

use super::format::{self, ALIGNMENT, FRAME_BYTES, Format, Frame, HEADER_BYTES};
use crate::fs::{self, Advice, File, Metadata};
use crate::runtime::cancelled::Reason;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The least number of bytes that are read at once.
const CHUNK_BYTES: usize = 256 << 10;

pub(super) struct Recovered {
    pub(super) format: Format,
    /// The end of the last record.
    pub(super) end: u64,
    /// The number of bytes behind it that were cut.
    pub(super) cut_bytes: u64,
}

/// Passes each record to `replay`, and prepares the file for appends. If it `trusts_cache`, it
/// makes the mistake that the module describes.
pub(super) fn recover(
    file: &File,
    path: &Path,
    trusts_cache: bool,
    replay: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<Recovered> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(refusal(path, "is not a regular file, as a log has to be"));
    }
    let len = metadata.len();
    if !trusts_cache && len > 0 {
        drop_cache(file)?;
    }
    let mut window = Window::new(file, len);
    let Some(format) = window.format()? else {
        if len > HEADER_BYTES as u64 || !window.is_unfinished()? {
            return Err(refusal(path, &window.what_else()?));
        }
        return create(file, path, &metadata);
    };
    let (mut end, mut last_group) = (HEADER_BYTES as u64, 0);
    while let Some(frame) = window.frame(format, end)? {
        let Some(record) = window.record(end, &frame)? else { break };
        replay(end, record)?;
        // The first group shares its page with the header.
        last_group = if frame.group == HEADER_BYTES as u64 { 0 } else { frame.group };
        end += format::space_of(frame.len) as u64;
    }
    if let Some(later) = window.later_group(format, end)? {
        return Err(damage(path, end, later));
    }
    if !trusts_cache {
        write_again(file, last_group..end)?;
    }
    if end < len {
        file.set_len(end)?;
    }
    sync(file, path)?;
    Ok(Recovered { format, end, cut_bytes: len - end })
}

/// Writes the header of a new log.
fn create(file: &File, path: &Path, metadata: &Metadata) -> io::Result<Recovered> {
    // It differs from that of an earlier file, whose blocks this one may get.
    let identity = [metadata.ino(), metadata.ctime() as u64, metadata.ctime_nsec() as u64];
    let bytes = identity.map(u64::to_le_bytes);
    let format = Format::new(format::checksum(bytes.as_flattened()));
    file.write_all_at(&format.header(), 0)?;
    sync(file, path)?;
    Ok(Recovered { format, end: HEADER_BYTES as u64, cut_bytes: 0 })
}

/// Makes the file and its name durable.
fn sync(file: &File, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    let directory = directory_of(path)?;
    let failed = |call: &str, e: io::Error| {
        if Reason::of(&e).is_some() {
            return e;
        }
        let shown = directory.display();
        let text = format!("cannot {call} {shown}, the directory that names the log: {e}");
        io::Error::new(e.kind(), text)
    };
    match File::open(&directory).map_err(|e| failed("open", e))?.sync_all() {
        // The file system cannot sync directories.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        result => result.map_err(|e| failed("sync", e)),
    }
}

/// Returns the directory that has the name of the file itself, not of a symbolic link to it.
fn directory_of(path: &Path) -> io::Result<PathBuf> {
    let real = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(e) if Reason::of(&e).is_some() => return Err(e),
        // For example a link below `/proc` to a file without a name.
        Err(_) => path.to_owned(),
    };
    let directory = real.parent().filter(|directory| !directory.as_os_str().is_empty());
    Ok(directory.unwrap_or(Path::new(".")).to_owned())
}

/// Has the following reads return what is on the disk, where the kernel knows this advice.
fn drop_cache(file: &File) -> io::Result<()> {
    // Only clean pages are dropped.
    file.sync_data()?;
    match file.advise(Advice::DontNeed, 0, 0) {
        Err(e) if Reason::of(&e).is_some() => Err(e),
        _ => Ok(()),
    }
}

/// Writes bytes of the file to their place, so that the next sync writes them to the disk.
fn write_again(file: &File, bytes: Range<u64>) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES.min((bytes.end - bytes.start) as usize)];
    let mut at = bytes.start;
    while at < bytes.end {
        let count = chunk.len().min((bytes.end - at) as usize);
        file.read_exact_at(&mut chunk[..count], at)?;
        file.write_all_at(&chunk[..count], at)?;
        at += count as u64;
    }
    Ok(())
}

fn refusal(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} {what}", path.display()))
}

fn damage(path: &Path, end: u64, later: u64) -> io::Error {
    let text = format!(
        "is damaged: the record at byte {end} is not intact, but it was synced before the one at \
         byte {later} was written; restore the file from a copy, or truncate it to {end} bytes, \
         which loses the records behind"
    );
    refusal(path, &text)
}

/// A part of the file in memory.
struct Window<'f> {
    file: &'f File,
    /// The length of the file.
    len: u64,
    at: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    fn new(file: &File, len: u64) -> Window<'_> {
        Window { file, len, at: 0, bytes: Vec::new() }
    }

    /// Returns bytes of the file; `None` if it ends before.
    fn get(&mut self, offset: u64, count: usize) -> io::Result<Option<&[u8]>> {
        let Some(left) = self.len.checked_sub(offset).filter(|&left| left >= count as u64) else {
            return Ok(None);
        };
        if offset < self.at || offset + count as u64 > self.at + self.bytes.len() as u64 {
            let size = left.min(count.max(CHUNK_BYTES) as u64);
            self.bytes.resize(size as usize, 0);
            self.at = offset;
            self.file.read_exact_at(&mut self.bytes, offset)?;
        }
        let first = (offset - self.at) as usize;
        Ok(Some(&self.bytes[first..first + count]))
    }

    fn format(&mut self) -> io::Result<Option<Format>> {
        Ok(self.get(0, HEADER_BYTES)?.and_then(Format::of_header))
    }

    fn is_unfinished(&mut self) -> io::Result<bool> {
        let header = self.get(0, HEADER_BYTES.min(self.len as usize))?;
        Ok(header.is_some_and(format::is_unfinished_header))
    }

    /// Describes a file that is no log.
    fn what_else(&mut self) -> io::Result<String> {
        let header = self.get(0, HEADER_BYTES.min(self.len as usize))?;
        Ok(match header.and_then(format::version_of) {
            Some(format::VERSION) => "is not a log, or the first 24 bytes are damaged".into(),
            Some(version) => {
                format!("is a log of version {version}; this program knows version 1")
            }
            None => "is not a log: its header is not that of a log".into(),
        })
    }

    fn frame(&mut self, format: Format, offset: u64) -> io::Result<Option<Frame>> {
        let bytes = self.get(offset, FRAME_BYTES)?;
        Ok(bytes.and_then(|bytes| format.read_frame(offset, bytes)))
    }

    /// Returns the record of a frame, if it is intact.
    fn record(&mut self, offset: u64, frame: &Frame) -> io::Result<Option<&[u8]>> {
        let bytes = self.get(offset, format::space_of(frame.len))?;
        let record = bytes.map(|bytes| &bytes[FRAME_BYTES..][..frame.len]);
        Ok(record.filter(|record| frame.is_of(record)))
    }

    /// Returns the offset of an intact frame whose group begins behind `end`, if there is one.
    fn later_group(&mut self, format: Format, end: u64) -> io::Result<Option<u64>> {
        let mut offset = end;
        while offset + FRAME_BYTES as u64 <= self.len {
            if self.frame(format, offset)?.is_some_and(|frame| frame.group > end) {
                return Ok(Some(offset));
            }
            offset += ALIGNMENT as u64;
        }
        Ok(None)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::directory_of;
    use std::path::Path;

    #[test]
    fn directory_is_that_of_the_file_behind_a_link() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().canonicalize().unwrap();
        let (links, files) = (root.join("links"), root.join("files"));
        std::fs::create_dir(&links).unwrap();
        std::fs::create_dir(&files).unwrap();
        std::fs::write(files.join("log"), "").unwrap();
        std::os::unix::fs::symlink("../files/log", links.join("log")).unwrap();
        assert_eq!(directory_of(&links.join("log")).unwrap(), files);
        assert_eq!(directory_of(&files.join("log")).unwrap(), files);
        assert_eq!(directory_of(&root.join("gone").join("log")).unwrap(), root.join("gone"));
        assert_eq!(directory_of(Path::new("no such log")).unwrap(), Path::new("."));
    }
}
