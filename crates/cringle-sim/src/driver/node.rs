//! One file or directory of a world: its memory file, and its contents on the simulated disk.

use super::rng::Rng;
use super::write_back::WriteBack;
use cringle_sys::Owned;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// The unit of a disk's writes.
const SECTOR_BYTES: usize = 512;
/// The time at which every world begins: 2001-09-09 01:46:40 UTC.
const EPOCH_SECONDS: i64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(super) enum NodeKind {
    File,
    /// Its memory file is empty, and serves only for its descriptors.
    Directory {
        name: Vec<u8>,
    },
}

/// See the module.
pub(super) struct Node {
    pub(super) memory: Owned<File>,
    pub(super) kind: NodeKind,
    /// The contents that survive a loss of power; `None` before the first sync. A sync of the
    /// directory makes only the name durable: then they are empty.
    pub(super) durable: Option<Vec<u8>>,
    pub(super) write_back: WriteBack,
    pub(super) modified_ns: u64,
}

impl Node {
    pub(super) fn new(memory: Owned<File>, modified_ns: u64) -> Node {
        let (kind, write_back) = (NodeKind::File, WriteBack::default());
        Node { memory, kind, durable: None, write_back, modified_ns }
    }

    pub(super) fn open(&mut self, flags: i32) -> io::Result<File> {
        let file = self.open_memory(flags)?;
        if flags & libc::O_TRUNC != 0 {
            self.write_back.cut(0);
        }
        self.write_back.opened(file.as_raw_fd());
        Ok(file)
    }

    fn open_memory(&self, flags: i32) -> io::Result<File> {
        let path = format!("/proc/self/fd/{}", self.memory.as_raw_fd());
        // This path is a link, unlike all names of a world.
        let flags = flags & !libc::O_NOFOLLOW;
        let access = flags & libc::O_ACCMODE;
        let mut options = File::options();
        options.read(access != libc::O_WRONLY).write(access != libc::O_RDONLY);
        options.custom_flags(flags & !libc::O_ACCMODE);
        match options.open(&path) {
            // Before Linux 6.6, memory files do not support `O_DIRECT`.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && flags & libc::O_DIRECT != 0 => {
                options.custom_flags(flags & !(libc::O_ACCMODE | libc::O_DIRECT)).open(&path)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(io::Error::other(format!(
                "{path} does not exist: simulated files are opened through /proc; mount it"
            ))),
            opened => opened,
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let len = self.memory.metadata().map_or(0, |metadata| metadata.len());
        let mut bytes = vec![0; len as usize];
        self.memory.read_exact_at(&mut bytes, 0).expect("a memory file can be read");
        bytes
    }

    /// Replaces the contents, on the disk, too, when no run has the file open.
    pub(super) fn replace(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.memory.set_len(0)?;
        self.memory.write_all_at(&bytes, 0)?;
        (self.durable, self.write_back) = (Some(bytes), WriteBack::default());
        Ok(())
    }

    /// Makes the contents durable, but for the pages that an earlier failure has dropped.
    pub(super) fn sync(&mut self) {
        let (now, old) = (self.bytes(), self.durable.take().unwrap_or_default());
        self.write_back.keep_dropped(&now);
        self.durable = Some(self.write_back.without_dropped(now, &old));
    }

    /// Makes the sectors of these bytes durable.
    pub(super) fn write_through(&mut self, bytes: &Range<u64>) {
        let now = self.bytes();
        let first = bytes.start as usize / SECTOR_BYTES * SECTOR_BYTES;
        let end = (bytes.end as usize).next_multiple_of(SECTOR_BYTES).min(now.len());
        let durable = self.durable.get_or_insert_default();
        if durable.len() < end {
            durable.resize(end, 0);
        }
        durable[first..end].copy_from_slice(&now[first..end]);
    }

    /// Whether a call that waits for the disk reports a failure: of an earlier write-back, which
    /// this open file has not reported yet, or of its own if it `fails`.
    pub(super) fn reports_failure(&mut self, fd: RawFd, rng: &mut Rng, fails: bool) -> bool {
        if fails {
            self.fail_write_back(rng);
        }
        self.write_back.reports(fd) || fails
    }

    /// A write-back fails.
    pub(super) fn fail_write_back(&mut self, rng: &mut Rng) {
        let now = self.bytes();
        self.write_back.fail(&now, self.durable.as_deref().unwrap_or(&[]), rng);
    }

    /// Writes some sectors of these bytes to the disk before they are synced.
    pub(super) fn write_early(&mut self, rng: &mut Rng, bytes: &Range<u64>) {
        let Some(durable) = &mut self.durable else { return };
        let first = bytes.start as usize / SECTOR_BYTES;
        let last = (bytes.end as usize).div_ceil(SECTOR_BYTES);
        for sector in (first..last).filter(|_| rng.one_in(2)) {
            let at = sector * SECTOR_BYTES;
            let Some(kept) = durable.get_mut(at..) else { return };
            let kept_len = kept.len().min(SECTOR_BYTES);
            // The read is short if the file has shrunk.
            let _ = self.memory.read_at(&mut kept[..kept_len], at as u64);
        }
    }

    /// Replaces times and numbers of the machine by the simulation's.
    pub(super) fn imitate(&self, number: usize, stat: &mut libc::statx) {
        let mut time = stat.stx_mtime;
        time.tv_sec = EPOCH_SECONDS + (self.modified_ns / 1_000_000_000) as i64;
        time.tv_nsec = (self.modified_ns % 1_000_000_000) as u32;
        (stat.stx_mtime, stat.stx_ctime, stat.stx_atime, stat.stx_btime) = (time, time, time, time);
        (stat.stx_ino, stat.stx_dev_major, stat.stx_dev_minor) = (number as u64 + 1, 0, 1);
        (stat.stx_nlink, stat.stx_uid, stat.stx_gid) = (1, 0, 0);
        if let NodeKind::Directory { .. } = self.kind {
            stat.stx_mode = (libc::S_IFDIR | 0o755) as u16;
        }
    }

    /// Draws the contents that a loss of power would leave now; `None` if the file would be lost.
    pub(super) fn draw_wreck(&self, rng: &mut Rng) -> Option<Vec<u8>> {
        let old = match &self.durable {
            Some(durable) => durable.as_slice(),
            None if rng.one_in(2) => return None,
            None => &[],
        };
        let now = self.write_back.without_dropped(self.bytes(), old);
        // All new bytes may be lost, or none, or each sector by itself.
        let lost_of_4 = [0, 1, 2, 3, 4][rng.below(5) as usize];
        let len = if rng.below(4) < lost_of_4 { old.len() } else { now.len() };
        let mut left = vec![0; len];
        for at in (0..len).step_by(SECTOR_BYTES) {
            let sector = at..(at + SECTOR_BYTES).min(len);
            let source = if rng.below(4) < lost_of_4 { old } else { &now };
            let bytes = source.get(at..).unwrap_or(&[]);
            let count = bytes.len().min(sector.len());
            left[sector][..count].copy_from_slice(&bytes[..count]);
        }
        Some(left)
    }
}
