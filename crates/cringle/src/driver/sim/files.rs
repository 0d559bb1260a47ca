//! The files of a world: names of its own, bytes in memory files of the kernel.
//!
//! Every open gives a new descriptor of the kernel's, so that closing, cursors, appending and the
//! inline calls of the library need no imitation. What a loss of power leaves of a file is decided
//! by comparing its bytes with those that were synced last, block by block: so it does not matter by
//! which call they were written.
//!
//! Directories are there by themselves: the library cannot make or list any yet. For the same reason
//! a file's first sync also keeps its name, as ext4, XFS and btrfs do.

use super::rng::Rng;
use crate::sys;
use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::sync::atomic::{AtomicU64, Ordering};

/// What a disk writes as a whole, in bytes.
const SECTOR_BYTES: usize = 512;
/// What new files have of the mode they are given: the usual umask, not the process's.
const MODE_MASK: u32 = 0o755;
/// The day on which every world begins: 2001-09-09 01:46:40 UTC.
const EPOCH_SECONDS: i64 = 1_000_000_000;

/// Tells the memory files of one world from all others of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorldId(u64);

/// See the module.
pub(crate) struct Files {
    id: WorldId,
    names: BTreeMap<Vec<u8>, usize>,
    nodes: Vec<Node>,
    /// By the number that the kernel knows the memory file by. Looked up, never iterated.
    by_number: HashMap<u64, usize>,
}

struct Node {
    memory: File,
    /// What a loss of power leaves in any case; `None` before the first sync.
    durable: Option<Vec<u8>>,
    modified_ns: u64,
}

/// What a loss of power leaves of one file; nothing, if its name was not kept.
pub(crate) struct Image {
    node: usize,
    bytes: Option<Vec<u8>>,
}

impl Files {
    pub(super) fn new() -> Files {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Files {
            id: WorldId(NEXT.fetch_add(1, Ordering::Relaxed)),
            names: BTreeMap::new(),
            nodes: Vec::new(),
            by_number: HashMap::new(),
        }
    }

    /// `open(2)`, with a new descriptor.
    pub(super) fn open(
        &mut self,
        path: &CStr,
        flags: i32,
        mode: u32,
        now_ns: u64,
    ) -> io::Result<RawFd> {
        let name = name_of(path.to_bytes());
        let errno = |errno| Err(io::Error::from_raw_os_error(errno));
        let node = match self.names.get(&name) {
            Some(_) if flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL => {
                return errno(libc::EEXIST);
            }
            Some(_) if flags & libc::O_DIRECTORY != 0 => return errno(libc::ENOTDIR),
            Some(&node) => node,
            None if flags & libc::O_CREAT == 0 => return errno(libc::ENOENT),
            None => self.make(name, mode & MODE_MASK, now_ns)?,
        };
        if flags & libc::O_TRUNC != 0 {
            self.nodes[node].modified_ns = now_ns;
        }
        self.nodes[node].open(flags & !(libc::O_CREAT | libc::O_EXCL)).map(IntoRawFd::into_raw_fd)
    }

    fn make(&mut self, name: Vec<u8>, mode: u32, now_ns: u64) -> io::Result<usize> {
        let memory = sys::memory_file(&format!("cringle-sim-{}", self.id.0))?;
        memory.set_permissions(std::fs::Permissions::from_mode(mode))?;
        let number = memory.metadata()?.ino();
        let node = self.nodes.len();
        self.nodes.push(Node { memory, durable: None, modified_ns: now_ns });
        self.by_number.insert(number, node);
        self.names.insert(name, node);
        Ok(node)
    }

    fn node_of(&mut self, fd: RawFd) -> Option<(usize, &mut Node)> {
        let &node = self.by_number.get(&sys::inode_number(fd)?)?;
        Some((node, &mut self.nodes[node]))
    }

    /// Some bytes of the file are new. With a seed, some blocks of these reach the disk at once.
    pub(super) fn written(&mut self, fd: RawFd, now_ns: u64, early: Option<(u64, u64, usize)>) {
        let Some((_, node)) = self.node_of(fd) else { return };
        node.modified_ns = now_ns;
        let Some((seed, offset, count)) = early else { return };
        let Some(durable) = &mut node.durable else { return };
        let mut rng = Rng::new(seed);
        let first = offset as usize / SECTOR_BYTES;
        let last = (offset as usize + count).div_ceil(SECTOR_BYTES);
        for sector in (first..last).filter(|_| rng.one_in(2)) {
            let at = sector * SECTOR_BYTES;
            let Some(kept) = durable.get_mut(at..) else { return };
            let kept_len = kept.len().min(SECTOR_BYTES);
            // A file that has become shorter has fewer bytes to give.
            let _ = node.memory.read_at(&mut kept[..kept_len], at as u64);
        }
    }

    /// What the file holds now survives.
    pub(super) fn sync(&mut self, fd: RawFd) {
        if let Some((_, node)) = self.node_of(fd) {
            node.durable = Some(node.bytes());
        }
    }

    pub(super) fn stat(
        &mut self,
        dir: RawFd,
        path: &CStr,
        flags: i32,
        mask: u32,
        out: &mut std::mem::MaybeUninit<libc::statx>,
    ) -> i32 {
        let fd = match path.is_empty() {
            true => dir,
            false => match self.names.get(&name_of(path.to_bytes())) {
                Some(&node) => self.nodes[node].memory.as_raw_fd(),
                None => return -libc::ENOENT,
            },
        };
        let flags = flags | libc::AT_EMPTY_PATH;
        if let Err(e) = sys::statx(fd, c"", flags, mask, out) {
            return -e.raw_os_error().unwrap_or(libc::EIO);
        }
        if let Some((number, node)) = self.node_of(fd) {
            // SAFETY: the call has filled the structure.
            let stat = unsafe { out.assume_init_mut() };
            node.imitate(number, stat);
        }
        0
    }

    /// Draws what would be left if the power were lost now.
    pub(super) fn draw_wreck(&self, rng: &mut Rng) -> Vec<Image> {
        let nodes = self.nodes.iter().enumerate();
        nodes.map(|(node, file)| Image { node, bytes: file.draw_wreck(rng) }).collect()
    }

    /// The machine starts again, with this left.
    pub(crate) fn restore(&mut self, wreck: Vec<Image>) -> io::Result<()> {
        for Image { node, bytes } in wreck {
            let Some(bytes) = bytes else {
                self.names.retain(|_, named| *named != node);
                continue;
            };
            let memory = &self.nodes[node].memory;
            memory.set_len(0)?;
            memory.write_all_at(&bytes, 0)?;
            self.nodes[node].durable = Some(bytes);
        }
        // What was made after the power was gone is nothing.
        self.names.retain(|_, node| self.nodes[*node].durable.is_some());
        Ok(())
    }

    // ----- from outside of a run -----

    pub(crate) fn read(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.names.get(&name_of(path)).map(|&node| self.nodes[node].bytes())
    }

    /// Makes or replaces a file; it is synced.
    pub(crate) fn write(&mut self, path: &[u8], bytes: &[u8]) -> io::Result<()> {
        let name = name_of(path);
        let node = match self.names.get(&name) {
            Some(&node) => node,
            None => self.make(name, 0o644, 0)?,
        };
        self.restore_one(node, bytes)
    }

    fn restore_one(&mut self, node: usize, bytes: &[u8]) -> io::Result<()> {
        let node = &mut self.nodes[node];
        node.memory.set_len(0)?;
        node.memory.write_all_at(bytes, 0)?;
        node.durable = Some(bytes.to_vec());
        Ok(())
    }

    pub(crate) fn remove(&mut self, path: &[u8]) -> bool {
        self.names.remove(&name_of(path)).is_some()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.keys().map(Vec::as_slice)
    }

    /// Descriptors of this world's files that somebody still has open.
    pub(crate) fn open_descriptors(&self) -> Vec<RawFd> {
        if self.nodes.is_empty() {
            return Vec::new();
        }
        let ours = format!("/memfd:cringle-sim-{} (deleted)", self.id.0);
        let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
        let leaked = entries.flatten().filter_map(|entry| {
            let fd: RawFd = entry.file_name().to_str()?.parse().ok()?;
            let target = std::fs::read_link(entry.path()).ok()?;
            let is_ours = target.to_str() == Some(&ours);
            (is_ours && !self.nodes.iter().any(|node| node.memory.as_raw_fd() == fd)).then_some(fd)
        });
        leaked.collect()
    }
}

impl Node {
    fn open(&self, flags: i32) -> io::Result<File> {
        let path = format!("/proc/self/fd/{}", self.memory.as_raw_fd());
        let access = flags & libc::O_ACCMODE;
        let mut options = File::options();
        options.read(access != libc::O_WRONLY).write(access != libc::O_RDONLY);
        options.custom_flags(flags & !libc::O_ACCMODE);
        match options.open(&path) {
            // Before Linux 6.6 memory files know no direct I/O.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && flags & libc::O_DIRECT != 0 => {
                options.custom_flags(flags & !(libc::O_ACCMODE | libc::O_DIRECT)).open(&path)
            }
            opened => opened,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let len = self.memory.metadata().map_or(0, |metadata| metadata.len());
        let mut bytes = vec![0; len as usize];
        self.memory.read_exact_at(&mut bytes, 0).expect("a memory file can be read");
        bytes
    }

    /// Times and number as a simulation has them.
    fn imitate(&self, number: usize, stat: &mut libc::statx) {
        let mut time = stat.stx_mtime;
        time.tv_sec = EPOCH_SECONDS + (self.modified_ns / 1_000_000_000) as i64;
        time.tv_nsec = (self.modified_ns % 1_000_000_000) as u32;
        (stat.stx_mtime, stat.stx_ctime, stat.stx_atime, stat.stx_btime) = (time, time, time, time);
        (stat.stx_ino, stat.stx_dev_major, stat.stx_dev_minor) = (number as u64 + 1, 0, 1);
        (stat.stx_nlink, stat.stx_uid, stat.stx_gid) = (1, 0, 0);
    }

    fn draw_wreck(&self, rng: &mut Rng) -> Option<Vec<u8>> {
        let now = self.bytes();
        let old = match &self.durable {
            Some(durable) => durable.as_slice(),
            None if rng.one_in(2) => return None,
            None => &[],
        };
        // All that is new may be lost, or none, or each block by itself.
        let lost_of_4 = [0, 1, 2, 3, 4][rng.below(5) as usize];
        let len = if rng.below(4) < lost_of_4 { old.len() } else { now.len() };
        let mut left = vec![0; len];
        for at in (0..len).step_by(SECTOR_BYTES) {
            let sector = at..(at + SECTOR_BYTES).min(len);
            let source = if rng.below(4) < lost_of_4 { old } else { &now };
            let there = source.get(at..).unwrap_or(&[]);
            let count = there.len().min(sector.len());
            left[sector][..count].copy_from_slice(&there[..count]);
        }
        Some(left)
    }
}

/// A path from the root, without `.`, `..` and doubled slashes. The working directory is the root.
fn name_of(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.iter().flat_map(|part| [b"/", *part].concat()).collect()
}
