//! The files of a world: names of its own, with their bytes in memory files of the kernel.
//!
//! Every open returns a new descriptor of the kernel, so that closing, cursors, appends and the
//! inline calls of the library need no imitation. A loss of power compares the bytes of each file
//! with its bytes at the last sync, sector by sector, so that it does not matter which call wrote
//! them. A write-back that fails drops pages: see [`write_back`](super::write_back).
//!
//! A directory exists if a file is below it, or if it was created. Opened as a directory, or as the
//! parent of a new file, every directory exists. The first sync of a file also makes its name
//! durable, as on ext4, XFS and btrfs, and so does a sync of its directory. Removing and renaming
//! are durable at once. Links, listings and other ops on a path (permissions, owners, attributes)
//! fail with `ENOSYS`: they are not imitated yet.

use super::node::{Node, NodeKind};
use super::rng::Rng;
use cringle_sys as sys;
use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicU64, Ordering};

/// The mode bits that new files keep: by the usual umask, not the process's.
const MODE_MASK: u32 = 0o755;

/// Identifies the memory files of one world in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorldId(u64);

/// See the module.
pub(crate) struct Files {
    id: WorldId,
    names: BTreeMap<Vec<u8>, usize>,
    /// The directories that were created, opened or examined.
    directories: BTreeMap<Vec<u8>, usize>,
    nodes: Vec<Node>,
    /// The nodes by the inode number of their memory file. Never iterated: the order would vary.
    by_number: HashMap<u64, usize>,
}

/// What a loss of power leaves of one file; no bytes if its name is lost.
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
            directories: BTreeMap::new(),
            nodes: Vec::new(),
            by_number: HashMap::new(),
        }
    }

    /// `open(2)`: returns a new descriptor.
    pub(super) fn open(
        &mut self,
        path: &CStr,
        flags: i32,
        mode: u32,
        now_ns: u64,
    ) -> io::Result<RawFd> {
        let name = name_of(path.to_bytes());
        let errno = |errno| Err(io::Error::from_raw_os_error(errno));
        let is_new = !self.names.contains_key(&name);
        let node = match self.names.get(&name) {
            Some(_) if flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL => {
                return errno(libc::EEXIST);
            }
            Some(_) if flags & libc::O_DIRECTORY != 0 => return errno(libc::ENOTDIR),
            Some(&node) => node,
            None if flags & libc::O_DIRECTORY != 0 || self.is_directory(&name) => {
                return self.open_directory(name, flags);
            }
            None if flags & libc::O_CREAT == 0 => return errno(libc::ENOENT),
            None => {
                let node = self.make(now_ns)?;
                self.names.insert(name, node);
                node
            }
        };
        if flags & libc::O_TRUNC != 0 {
            self.nodes[node].modified_ns = now_ns;
        }
        let file = self.nodes[node].open(flags & !(libc::O_CREAT | libc::O_EXCL))?;
        if is_new {
            // After the open: the creator may write to the file, whatever its mode.
            let mode = std::fs::Permissions::from_mode(mode & MODE_MASK);
            self.nodes[node].memory.set_permissions(mode)?;
        }
        Ok(file.into_raw_fd())
    }

    fn make(&mut self, now_ns: u64) -> io::Result<usize> {
        let memory = sys::simulated::memory_file(&format!("cringle-sim-{}", self.id.0))?;
        let number = memory.metadata()?.ino();
        let node = self.nodes.len();
        self.nodes.push(Node::new(memory, now_ns));
        self.by_number.insert(number, node);
        Ok(node)
    }

    /// Opens a directory, for a sync. Its descriptor refers to an empty memory file.
    fn open_directory(&mut self, name: Vec<u8>, flags: i32) -> io::Result<RawFd> {
        if flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_CREAT != 0 {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        let node = self.directory(name)?;
        let file = self.nodes[node].open(flags & !libc::O_DIRECTORY)?;
        Ok(file.into_raw_fd())
    }

    /// Returns the node of a directory.
    fn directory(&mut self, name: Vec<u8>) -> io::Result<usize> {
        if let Some(&node) = self.directories.get(&name) {
            return Ok(node);
        }
        let node = self.make(0)?;
        self.nodes[node].kind = NodeKind::Directory { name: name.clone() };
        self.directories.insert(name, node);
        Ok(node)
    }

    /// Whether the name is the name of the root, of a directory that was created, or of one with a
    /// file below it.
    fn is_directory(&self, name: &[u8]) -> bool {
        let below = [name, b"/"].concat();
        let first = self.names.range(below.clone()..).next();
        name.is_empty()
            || self.directories.contains_key(name)
            || first.is_some_and(|(name, _)| name.starts_with(&below))
    }

    /// Whether the descriptor refers to a file of this world.
    pub(super) fn has(&mut self, fd: RawFd) -> bool {
        self.node_of(fd).is_some()
    }

    /// Whether the descriptor refers to a directory.
    pub(super) fn is_open_directory(&mut self, fd: RawFd) -> bool {
        self.node_of(fd).is_some_and(|(_, node)| matches!(node.kind, NodeKind::Directory { .. }))
    }

    /// `mkdir(2)`, which succeeds for an existing directory too.
    pub(super) fn make_directory(&mut self, path: &CStr) -> io::Result<()> {
        let name = name_of(path.to_bytes());
        if self.names.contains_key(&name) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        self.directory(name).map(drop)
    }

    fn node_of(&mut self, fd: RawFd) -> Option<(usize, &mut Node)> {
        let &node = self.by_number.get(&sys::simulated::inode_number(fd)?)?;
        Some((node, &mut self.nodes[node]))
    }

    /// Records that bytes of the file were changed.
    pub(super) fn changed(&mut self, fd: RawFd, now_ns: u64) {
        if let Some((_, node)) = self.node_of(fd) {
            node.modified_ns = now_ns;
        }
    }

    /// Records that these bytes of the file were written.
    pub(super) fn written(&mut self, fd: RawFd, now_ns: u64, bytes: &Range<u64>) {
        if let Some((_, node)) = self.node_of(fd) {
            node.modified_ns = now_ns;
            node.write_back.written(bytes.clone());
        }
    }

    /// Records that the file was truncated or extended.
    pub(super) fn resized(&mut self, fd: RawFd, now_ns: u64, len: u64) {
        if let Some((_, node)) = self.node_of(fd) {
            node.modified_ns = now_ns;
            node.write_back.cut(len);
        }
    }

    /// Some sectors of bytes that were just written reach the disk at once; or the write-back
    /// `fails`, which no sync has reported yet.
    pub(super) fn write_early(
        &mut self,
        fd: RawFd,
        rng: &mut Rng,
        bytes: &Range<u64>,
        fails: bool,
    ) {
        match self.node_of(fd) {
            Some((_, node)) if fails => node.fail_write_back(rng),
            Some((_, node)) => node.write_early(rng, bytes),
            None => {}
        }
    }

    /// Makes the contents of the file durable, or the names in the directory; or it `fails`.
    /// Returns the result of the call.
    pub(super) fn sync(&mut self, fd: RawFd, rng: &mut Rng, fails: bool) -> i32 {
        let Some((_, node)) = self.node_of(fd) else { return if fails { -libc::EIO } else { 0 } };
        if node.reports_failure(fd, rng, fails) {
            return -libc::EIO;
        }
        let NodeKind::Directory { name: directory } = &node.kind else {
            node.sync();
            return 0;
        };
        let directory = directory.clone();
        for (name, &node) in &self.names {
            if parent_of(name) == directory {
                self.nodes[node].durable.get_or_insert_default();
            }
        }
        0
    }

    /// Makes the pages of a write durable (`RWF_DSYNC`), or it `fails`. Returns the result.
    pub(super) fn write_through(
        &mut self,
        fd: RawFd,
        rng: &mut Rng,
        bytes: &Range<u64>,
        fails: bool,
    ) -> i32 {
        let Some((_, node)) = self.node_of(fd) else { return 0 };
        if node.reports_failure(fd, rng, fails) {
            return -libc::EIO;
        }
        node.write_through(bytes);
        0
    }

    /// `sync_file_range(2)`, which makes no bytes durable. If it `fails`, the call returns the
    /// error only if it `waits`.
    pub(super) fn sync_range(&mut self, fd: RawFd, rng: &mut Rng, waits: bool, fails: bool) -> i32 {
        let Some((_, node)) = self.node_of(fd) else { return 0 };
        if fails {
            node.fail_write_back(rng);
        }
        if waits && node.write_back.reports(fd) { -libc::EIO } else { 0 }
    }

    /// `unlink(2)`, durable at once.
    pub(super) fn unlink(&mut self, path: &CStr) -> i32 {
        match self.names.remove(&name_of(path.to_bytes())) {
            Some(_) => 0,
            None => -libc::ENOENT,
        }
    }

    /// `renameat2(2)` of a file: durable at once if the file is.
    pub(super) fn rename(&mut self, from: &CStr, to: &CStr, flags: u32) -> i32 {
        if flags & !libc::RENAME_NOREPLACE != 0 {
            return -libc::ENOSYS;
        }
        let (from, to) = (name_of(from.to_bytes()), name_of(to.to_bytes()));
        if flags != 0 && self.names.contains_key(&from) && self.names.contains_key(&to) {
            return -libc::EEXIST;
        }
        match self.names.remove(&from) {
            Some(node) => {
                self.names.insert(to, node);
                0
            }
            None => -libc::ENOENT,
        }
    }

    /// `statx(2)`, with the times and numbers of the simulation.
    pub(super) fn stat(
        &mut self,
        dir: RawFd,
        path: &CStr,
        flags: i32,
        mask: u32,
        out: &mut std::mem::MaybeUninit<libc::statx>,
    ) -> i32 {
        let fd = if path.is_empty() {
            dir
        } else {
            let name = name_of(path.to_bytes());
            let node = match self.names.get(&name) {
                Some(&node) => Ok(node),
                None if self.is_directory(&name) => self.directory(name),
                None => return -libc::ENOENT,
            };
            match node {
                Ok(node) => self.nodes[node].memory.as_raw_fd(),
                Err(e) => return -e.raw_os_error().unwrap_or(libc::EIO),
            }
        };
        let flags = flags | libc::AT_EMPTY_PATH;
        if let Err(e) = sys::statx(fd, c"", flags, mask, out) {
            return -e.raw_os_error().unwrap_or(libc::EIO);
        }
        if let Some((number, node)) = self.node_of(fd) {
            // SAFETY: by the contract of `statx`, a call that succeeds fills the structure.
            let stat = unsafe { out.assume_init_mut() };
            node.imitate(number, stat);
        }
        0
    }

    /// Draws what a loss of power would leave now.
    pub(super) fn draw_wreck(&self, rng: &mut Rng) -> Vec<Image> {
        let nodes = self.nodes.iter().enumerate();
        let files = nodes.filter(|(_, node)| matches!(node.kind, NodeKind::File));
        files.map(|(node, file)| Image { node, bytes: file.draw_wreck(rng) }).collect()
    }

    /// Restarts the machine with the files that a loss of power left.
    pub(crate) fn restore(&mut self, wreck: Vec<Image>) -> io::Result<()> {
        for Image { node, bytes } in wreck {
            let Some(bytes) = bytes else {
                self.names.retain(|_, named| *named != node);
                continue;
            };
            self.nodes[node].replace(bytes)?;
        }
        // Files made after the loss of power do not exist.
        self.names.retain(|_, node| self.nodes[*node].durable.is_some());
        Ok(())
    }

    // ----- outside of a run -----

    pub(crate) fn read(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.names.get(&name_of(path)).map(|&node| self.nodes[node].bytes())
    }

    /// Creates or replaces a file, and syncs it.
    pub(crate) fn write(&mut self, path: &[u8], bytes: &[u8]) -> io::Result<()> {
        let name = name_of(path);
        let node = match self.names.get(&name) {
            Some(&node) => node,
            None => {
                let node = self.make(0)?;
                self.names.insert(name, node);
                let mode = std::fs::Permissions::from_mode(0o644);
                self.nodes[node].memory.set_permissions(mode)?;
                node
            }
        };
        self.nodes[node].replace(bytes.to_vec())
    }

    pub(crate) fn remove(&mut self, path: &[u8]) -> bool {
        self.names.remove(&name_of(path)).is_some()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.keys().map(Vec::as_slice)
    }

    /// The descriptors of this world's files that are still open.
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

/// The name of the directory that contains this name.
fn parent_of(name: &[u8]) -> &[u8] {
    let slash = name.iter().rposition(|&byte| byte == b'/');
    &name[..slash.expect("a name begins with a slash")]
}

/// The absolute path without `.`, `..` and doubled slashes. The working directory is the root.
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
