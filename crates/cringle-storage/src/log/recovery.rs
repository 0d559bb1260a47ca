//! Opening a log: finds its end, cuts a torn group, and makes the rest durable.
//!
//! Groups are written one after the other, each after the sync of the one before. So after a crash
//! only the last group can be torn, in any of its sectors. If the group of the first damaged record
//! is not the last one, it was synced, and its bytes were lost later: an error. Either of two signs
//! shows this: an intact frame of a later group, or, from version 2, a file that is longer than the
//! group's first frame says. A group begins in the sector in which the one before ends, whose bytes
//! it does not change: sectors are assumed to be written as a whole.
//!
//! # A torn group of which some records are intact
//!
//! The intact records are kept, and the rest is cut. Then the group must say its new size, or the
//! file could lose later groups without notice until it is longer than the torn group was. First
//! the cut is synced. Then the new size is written in place, after a filler if the end needs one,
//! and synced before the log is open. (Refused: another group behind the end of the torn one, which
//! needs space; and a cut of the whole group, which loses more where the last group was damaged and
//! not torn.) A crash leaves one of these:
//!
//! - The cut is not durable: the same torn group, whose size is the old one.
//! - The cut is durable, the new first frame is not: the group is torn at the cut, or behind the
//!   filler. Its old size is not less than that end, because the filler ends at the first offset
//!   where a group may end, and the torn group ended at such an offset, too.
//! - The new first frame is durable, the filler is not: the group is torn where the filler begins.
//! - Both are durable: the group is complete.
//!
//! The first frame is in one sector, so it is the old one or the new one. In no case is the file
//! longer than the first frame says. So the next recovery finds a torn group again, and no damage.
//! (If the kernel writes only a part of these 16 bytes, and then the machine crashes, the whole
//! group is cut. No append and no `open` has acknowledged it, unless it was damaged afterwards.)
//! No bytes of a torn group come back behind the cut: it is durable before a byte is written there.
//!
//! # Refused writes
//!
//! The cut comes first, because it frees space. If the file system refuses any of the writes and
//! syncs for want of space, or because it is read-only, or the file is larger than the process may
//! write (`RLIMIT_FSIZE`), then the log is open for reading only. The next recovery repeats
//! everything.
//!
//! # The page cache
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

use super::format::{
    self, ALIGNMENT, FRAME_BYTES, Format, Frame, HEADER_BYTES, OLDEST_VERSION, SECTOR_BYTES,
    VERSION,
};
use cringle_core::cancelled;
use cringle_std::fs::{self, Advice, File, Metadata};
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
    /// The end of the records that are durable without doubt.
    pub(super) durable: u64,
    /// The number of bytes behind the last record that were cut.
    pub(super) cut_bytes: u64,
    /// Why nothing can be appended.
    pub(super) refusal: Option<io::Error>,
}

/// What the file contains.
struct Found {
    format: Format,
    /// The end of the intact records.
    end: u64,
    /// The group at `end`, if its size is known: it may end there, or be torn.
    group: Range<u64>,
    /// The start of the last group of which a record is intact.
    last_group: u64,
}

impl Found {
    /// Whether the group at the end is not complete.
    fn is_torn(&self) -> bool {
        self.end < self.group.end
    }

    /// Whether some records of a torn group are intact.
    fn is_shortened(&self) -> bool {
        self.is_torn() && self.end > self.group.start
    }

    /// Whether a group of known size may have this frame at the end of the records before.
    fn is_continued_by(&self, frame: &Frame) -> bool {
        match frame.group_end {
            _ if !self.format.has_sizes() => true,
            Some(_) => self.end == self.group.end,
            None => self.is_torn() && frame.group == self.group.start,
        }
    }
}

/// Passes each record to `replay`, and prepares the file for appends, unless a `refusal` says that
/// it is open for reading only. If it `trusts_cache`, it makes the mistake that the module
/// describes.
pub(super) fn recover(
    file: &File,
    path: &Path,
    trusts_cache: bool,
    mut refusal: Option<io::Error>,
    replay: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<Recovered> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(refusal_of(path, "is not a regular file, as a log has to be"));
    }
    let len = metadata.len();
    if !trusts_cache && len > 0 && refusal.is_none() {
        refusal = refused(drop_cache(file))?;
    }
    let mut window = Window::new(file, len);
    let Some(format) = window.format()? else {
        if len > HEADER_BYTES as u64 || !window.is_unfinished()? {
            return Err(refusal_of(path, &window.what_else()?));
        }
        return refusal.map_or_else(|| create(file, path, &metadata), Err);
    };
    let found = window.records(format, replay)?;
    if let Some(later) = window.later_group(&found)? {
        return Err(damage(path, found.end, later));
    }
    let durable = found.last_group.max(HEADER_BYTES as u64);
    let mut recovered = Recovered { format, end: found.end, durable, cut_bytes: 0, refusal };
    if recovered.refusal.is_none() {
        let settled = recovered.settle(file, path, &found, len, trusts_cache);
        recovered.refusal = refused(settled)?;
    }
    Ok(recovered)
}

/// Returns the error if a write was refused for want of space or by a limit, or all writes are.
fn refused(result: io::Result<()>) -> io::Result<Option<io::Error>> {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let is_refusal =
        |kind| matches!(kind, FileTooLarge | QuotaExceeded | ReadOnlyFilesystem | StorageFull);
    match result {
        Ok(()) => Ok(None),
        Err(e) if is_refusal(e.kind()) => Ok(Some(e)),
        Err(e) => Err(e),
    }
}

impl Recovered {
    /// Cuts what is behind the records, and makes the rest durable.
    fn settle(
        &mut self,
        file: &File,
        path: &Path,
        found: &Found,
        len: u64,
        trusts_cache: bool,
    ) -> io::Result<()> {
        if found.end < len {
            file.set_len(found.end)?;
            self.cut_bytes = len - found.end;
        }
        if found.is_shortened() {
            file.sync_all()?;
        }
        if !trusts_cache {
            write_again(file, found.last_group..found.end)?;
        }
        if found.is_shortened() {
            self.end = shorten(file, found)?;
        }
        sync(file, path)?;
        self.durable = self.end;
        Ok(())
    }
}

/// Has a torn group end with its intact records. Returns its new end.
fn shorten(file: &File, found: &Found) -> io::Result<u64> {
    let (start, end) = (found.group.start, found.end);
    let tail_len = (end - start).min(SECTOR_BYTES as u64) as usize;
    let mut tail = vec![0; tail_len];
    file.read_exact_at(&mut tail, end - tail_len as u64)?;
    found.format.fill(start, end, &mut tail);
    let filler = &tail[tail_len..];
    file.write_all_at(filler, end)?;
    let new_end = end + filler.len() as u64;
    let mut frame = [0; FRAME_BYTES];
    file.read_exact_at(&mut frame, start)?;
    found.format.set_size(start, &mut frame, new_end - start);
    file.write_all_at(&frame, start)?;
    Ok(new_end)
}

/// Writes the header of a new log.
fn create(file: &File, path: &Path, metadata: &Metadata) -> io::Result<Recovered> {
    // It differs from the salt of an earlier file, whose blocks this one may get.
    let identity = [metadata.ino(), metadata.ctime() as u64, metadata.ctime_nsec() as u64];
    let bytes = identity.map(u64::to_le_bytes);
    let format = Format::new(format::checksum(bytes.as_flattened()));
    file.write_all_at(&format.header(), 0)?;
    sync(file, path)?;
    let end = HEADER_BYTES as u64;
    Ok(Recovered { format, end, durable: end, cut_bytes: 0, refusal: None })
}

/// Makes the file and its name durable.
fn sync(file: &File, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    let directory = directory_of(path)?;
    let failed = |call: &str, e: io::Error| {
        if cancelled::reason_of(&e).is_some() {
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
        Err(e) if cancelled::reason_of(&e).is_some() => return Err(e),
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
        Err(e) if cancelled::reason_of(&e).is_some() => Err(e),
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

fn refusal_of(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} {what}", path.display()))
}

fn damage(path: &Path, end: u64, later: u64) -> io::Error {
    let text = format!(
        "is damaged: the record at byte {end} is not intact, but it was synced before the one at \
         byte {later} was written; restore the file from a copy, or truncate it to {end} bytes, \
         which loses the records behind"
    );
    refusal_of(path, &text)
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
            Some(OLDEST_VERSION..=VERSION) => {
                "is not a log, or the first 24 bytes are damaged".into()
            }
            Some(version) => {
                format!("is a log of version {version}; this program knows versions 1 and 2")
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

    /// Passes the intact records to `replay`.
    fn records(
        &mut self,
        format: Format,
        replay: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<Found> {
        let start = HEADER_BYTES as u64;
        let group = if format.has_sizes() { start..start } else { 0..0 };
        let mut found = Found { format, end: start, group, last_group: 0 };
        while let Some(frame) = self.frame(format, found.end)? {
            if !found.is_continued_by(&frame) {
                break;
            }
            if let Some(group_end) = frame.group_end {
                found.group = found.end..group_end;
            }
            let Some(record) = self.record(found.end, &frame)? else { break };
            if !frame.is_filler {
                replay(found.end, record)?;
            }
            // The first group shares its page with the header.
            found.last_group = if frame.group == start { 0 } else { frame.group };
            found.end += format::space_of(frame.len) as u64;
        }
        Ok(found)
    }

    /// Returns an offset behind the group of the first record that is not intact, at which a later
    /// group has bytes.
    fn later_group(&mut self, found: &Found) -> io::Result<Option<u64>> {
        let Range { start, end } = found.group;
        if found.is_torn() && self.len > end {
            return Ok(Some(end));
        }
        let start = if found.is_torn() { start } else { found.end };
        let mut offset = found.end;
        while offset + FRAME_BYTES as u64 <= self.len {
            if self.frame(found.format, offset)?.is_some_and(|frame| frame.group > start) {
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
