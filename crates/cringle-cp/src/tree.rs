//! The directories that are being copied, source and target side by side: each an open handle while
//! these are few, else reopened from its parent.
//!
//! Names are looked up relative to handles, never by long paths, and a target directory is never
//! reached through a symbolic link: if it is swapped for a link, the lookup fails. A directory that
//! is reopened must have its old identity (device and inode).
//!
//! A handle that is closed here stays open while a listing or a worker shares it, and is found
//! again through a weak reference. Where descriptors are few, all handles that are not shared are
//! closed.
//!
//! A directory is finished when everything in it is: `pending` counts the unfinished parts.

use crate::choices::Follow;
use crate::messages::{Reporter, quote};
use crate::options::Options;
use crate::sys::{self, Stat};
use crate::workers::lock;
use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Target,
}

/// One side of a directory.
struct Handle {
    held: Mutex<Held>,
    id: (u64, u64),
}

enum Held {
    Open(Arc<OwnedFd>),
    /// An unfinished listing or a worker may still have it open.
    Closed(Weak<OwnedFd>),
}

impl Handle {
    fn new(fd: Option<OwnedFd>, id: (u64, u64)) -> Handle {
        let held = fd.map_or(Held::Closed(Weak::new()), |fd| Held::Open(Arc::new(fd)));
        Handle { held: Mutex::new(held), id }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        lock(&self.held)
    }

    /// Returns the handle if it is open anywhere.
    fn get(&self) -> Option<Arc<OwnedFd>> {
        match &*self.lock() {
            Held::Open(fd) => Some(Arc::clone(fd)),
            Held::Closed(last) => last.upgrade(),
        }
    }

    fn keep(&self, fd: &Arc<OwnedFd>) {
        *self.lock() = Held::Open(Arc::clone(fd));
    }

    /// Releases the handle. A listing or a worker that shares it keeps it open.
    fn close(&self) {
        let mut held = self.lock();
        if let Held::Open(fd) = &*held {
            let used = Arc::strong_count(fd) > 1;
            *held = Held::Closed(if used { Arc::downgrade(fd) } else { Weak::new() });
        }
    }

    /// Closes the handle if it is not shared; returns whether it did.
    fn close_unused(&self) -> bool {
        let mut held = self.lock();
        let unused = matches!(&*held, Held::Open(fd) if Arc::strong_count(fd) == 1);
        if unused {
            *held = Held::Closed(Weak::new());
        }
        unused
    }
}

/// One name of the command line.
pub(crate) struct Root {
    pub(crate) source: OsString,
    pub(crate) target: OsString,
    /// The first directory that was created. If the source contains it, a directory is copied into
    /// itself.
    pub(crate) first_made: OnceLock<(u64, u64)>,
    pub(crate) device: u64,
    /// Links to directories are followed within the tree.
    pub(crate) follow: bool,
}

impl Root {
    pub(crate) fn new(options: &Options, item: &Item<'_>, stat: &Stat) -> Root {
        Root {
            source: item.path(Side::Source),
            target: item.path(Side::Target),
            first_made: OnceLock::new(),
            device: stat.st_dev,
            follow: options.follow == Follow::Always,
        }
    }
}

/// A directory that is being copied.
pub(crate) struct Dir {
    pub(crate) parent: Option<Arc<Dir>>,
    pub(crate) root: Arc<Root>,
    source_name: CString,
    target_name: CString,
    source: Handle,
    target: Handle,
    pub(crate) stat: Stat,
    pub(crate) made: bool,
    /// An earlier run of this copy has created it.
    pub(crate) resumed: bool,
    /// The mode to set at the end, if the directory was created with more permissions.
    pub(crate) final_mode: Option<u32>,
    /// New files in the directory inherit an ACL.
    pub(crate) gives_default_acl: bool,
    pub(crate) pending: AtomicUsize,
    /// Its key in the manifest of `--resume`.
    pub(crate) key: u128,
}

/// Both sides of a directory, just opened.
pub(crate) struct Opened {
    pub(crate) source: OwnedFd,
    /// `None` in a dry run, for a directory that does not exist.
    pub(crate) target: Option<OwnedFd>,
    pub(crate) target_id: (u64, u64),
    pub(crate) stat: Stat,
    pub(crate) made: bool,
    pub(crate) resumed: bool,
    pub(crate) final_mode: Option<u32>,
    pub(crate) gives_default_acl: bool,
    pub(crate) key: u128,
}

impl Dir {
    /// Creates a directory with one pending part: its listing.
    pub(crate) fn new(
        parent: Option<Arc<Dir>>,
        root: Arc<Root>,
        (source_name, target_name): (CString, CString),
        opened: Opened,
        open: &OpenDirs,
    ) -> Arc<Dir> {
        let dir = Arc::new(Dir {
            source: Handle::new(Some(opened.source), sys::id(&opened.stat)),
            target: Handle::new(opened.target, opened.target_id),
            parent,
            root,
            source_name,
            target_name,
            stat: opened.stat,
            made: opened.made,
            resumed: opened.resumed,
            final_mode: opened.final_mode,
            gives_default_acl: opened.gives_default_acl,
            pending: AtomicUsize::new(1),
            key: opened.key,
        });
        open.add(&dir);
        dir
    }

    /// Returns the directory as an entry of its parent, for messages.
    pub(crate) fn as_item(&self) -> Item<'_> {
        Item {
            dir: self.parent.as_ref(),
            source_dir: sys::CWD,
            source: &self.source_name,
            target_dir: sys::CWD,
            target: &self.target_name,
        }
    }

    fn handle(&self, side: Side) -> &Handle {
        match side {
            Side::Source => &self.source,
            Side::Target => &self.target,
        }
    }

    fn name(&self, side: Side) -> &CStr {
        match side {
            Side::Source => &self.source_name,
            Side::Target => &self.target_name,
        }
    }

    pub(crate) fn target_device(&self) -> u64 {
        self.target.id.0
    }

    /// Returns the open directory; reopens it from its nearest open ancestor.
    pub(crate) fn fd(self: &Arc<Dir>, side: Side, open: &OpenDirs) -> io::Result<Arc<OwnedFd>> {
        if let Some(fd) = self.handle(side).get() {
            return Ok(fd);
        }
        let mut way = vec![self];
        let mut above = self.parent.as_ref();
        let mut fd = loop {
            let Some(dir) = above else {
                // The root has been finished (a link to a file in it is still to be made), or was
                // closed for lack of descriptors.
                let Some(root) = way.pop() else { return Err(stale()) };
                break root.adopt(side, open_side(side, sys::CWD, root.name(side), true)?)?;
            };
            if let Some(fd) = dir.handle(side).get() {
                break fd;
            }
            way.push(dir);
            above = dir.parent.as_ref();
        };
        for dir in way.into_iter().rev() {
            let follow = side == Side::Source && self.root.follow;
            let opened = open_side(side, fd.as_fd(), dir.name(side), follow)?;
            fd = dir.adopt(side, opened)?;
        }
        if self.parent.is_some() {
            self.handle(side).keep(&fd);
            open.add(self);
        }
        Ok(fd)
    }

    /// Accepts a reopened directory if it has the old identity.
    fn adopt(&self, side: Side, fd: OwnedFd) -> io::Result<Arc<OwnedFd>> {
        if sys::id(&sys::stat_of(fd.as_fd())?) != self.handle(side).id {
            return Err(stale());
        }
        Ok(Arc::new(fd))
    }

    /// Like [`fd`](Dir::fd), for the parent of an open directory: a deep tree is finished from the
    /// bottom up, and each step costs one lookup.
    pub(crate) fn fd_from(
        self: &Arc<Dir>,
        side: Side,
        below: Option<&OwnedFd>,
        open: &OpenDirs,
    ) -> io::Result<Arc<OwnedFd>> {
        if let Some(fd) = self.handle(side).get() {
            return Ok(fd);
        }
        let above = below.and_then(|below| open_side(side, below.as_fd(), c"..", false).ok());
        match above.and_then(|fd| self.adopt(side, fd).ok()) {
            Some(fd) => Ok(fd),
            None => self.fd(side, open),
        }
    }

    pub(crate) fn path(&self, side: Side) -> OsString {
        let mut names = vec![self.name(side)];
        let mut above = self.parent.as_ref();
        while let Some(dir) = above {
            names.push(dir.name(side));
            above = dir.parent.as_ref();
        }
        names.reverse();
        let mut path = Vec::new();
        for name in names {
            join(&mut path, name.to_bytes());
        }
        OsString::from_vec(path)
    }

    /// Returns whether this directory or an ancestor has that identity: a link led back up.
    pub(crate) fn is_within(self: &Arc<Dir>, source: (u64, u64)) -> bool {
        let mut dir = Some(self);
        while let Some(this) = dir {
            if this.source.id == source {
                return true;
            }
            dir = this.parent.as_ref();
        }
        false
    }

    /// Releases both handles: no more names are looked up in them.
    pub(crate) fn close(&self) {
        self.source.close();
        self.target.close();
    }
}

/// Drops the directories above one after the other: recursively, a deep tree would need a deep
/// stack.
impl Drop for Dir {
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut dir) = above.and_then(Arc::into_inner) {
            above = dir.parent.take();
        }
    }
}

fn stale() -> io::Error {
    io::Error::from_raw_os_error(libc::ESTALE)
}

pub(crate) fn open_dir(dir: BorrowedFd<'_>, name: &CStr, follow: bool) -> io::Result<OwnedFd> {
    let flags = if follow { 0 } else { libc::O_NOFOLLOW };
    sys::open_at(dir, name, libc::O_RDONLY | libc::O_DIRECTORY | flags, 0)
}

/// Opens a directory. A target that cannot be read is opened for lookups only, because it is not
/// listed.
pub(crate) fn open_side(
    side: Side,
    dir: BorrowedFd<'_>,
    name: &CStr,
    follow: bool,
) -> io::Result<OwnedFd> {
    match open_dir(dir, name, follow) {
        Err(e) if side == Side::Target && e.raw_os_error() == Some(libc::EACCES) => {
            let flags = if follow { 0 } else { libc::O_NOFOLLOW };
            sys::open_at(dir, name, libc::O_PATH | libc::O_DIRECTORY | flags, 0)
        }
        answer => answer,
    }
}

/// Appends a name to a path, with one slash between.
pub(crate) fn join(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// The directories with open handles; the oldest is closed when there are too many.
pub(crate) struct OpenDirs {
    most: usize,
    kept: Mutex<VecDeque<Weak<Dir>>>,
    /// The source of the command line that is being copied can be reopened only by its path, so it
    /// stays open while descriptors suffice.
    root: Mutex<Weak<Dir>>,
}

impl OpenDirs {
    pub(crate) fn new(most: usize) -> OpenDirs {
        OpenDirs { most, kept: Mutex::default(), root: Mutex::default() }
    }

    fn add(&self, dir: &Arc<Dir>) {
        if dir.parent.is_none() {
            *lock(&self.root) = Arc::downgrade(dir);
            return;
        }
        let oldest = {
            let mut open = lock(&self.kept);
            open.push_back(Arc::downgrade(dir));
            if open.len() > self.most { open.pop_front() } else { None }
        };
        if let Some(dir) = oldest.and_then(|dir| dir.upgrade()) {
            dir.close();
        }
    }

    /// Closes handles that are not shared; the root's last. Returns false if none was closed.
    pub(crate) fn close_unused(&self) -> bool {
        let close = |dir: &Weak<Dir>| {
            let dir = dir.upgrade();
            // `|`, not `||`: both sides are closed.
            dir.is_some_and(|dir| dir.source.close_unused() | dir.target.close_unused())
        };
        let kept: Vec<_> = lock(&self.kept).iter().cloned().collect();
        if kept.iter().filter(|dir| close(dir)).count() > 0 {
            return true;
        }
        let root = lock(&self.root).clone();
        close(&root)
    }
}

/// A name to copy: its source and its target.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    /// `None` for a name of the command line.
    pub(crate) dir: Option<&'a Arc<Dir>>,
    pub(crate) source_dir: BorrowedFd<'a>,
    pub(crate) source: &'a CStr,
    pub(crate) target_dir: BorrowedFd<'a>,
    pub(crate) target: &'a CStr,
}

impl<'a> Item<'a> {
    pub(crate) fn of_command_line(source: &'a CStr, target: &'a CStr) -> Item<'a> {
        Item { dir: None, source_dir: sys::CWD, source, target_dir: sys::CWD, target }
    }

    /// Opens one side as a directory and returns its status. Reports a failure.
    pub(crate) fn open_dir(
        &self,
        side: Side,
        follow: bool,
        reporter: &Reporter,
    ) -> io::Result<(OwnedFd, Stat)> {
        let (dir, name) = match side {
            Side::Source => (self.source_dir, self.source),
            Side::Target => (self.target_dir, self.target),
        };
        open_side(side, dir, name, follow)
            .and_then(|open| sys::stat_of(open.as_fd()).map(|stat| (open, stat)))
            .inspect_err(|e| reporter.fail_with(&format!("cannot access {}", self.quoted(side)), e))
    }

    pub(crate) fn path(&self, side: Side) -> OsString {
        let name = if side == Side::Source { self.source } else { self.target };
        match self.dir {
            None => OsStr::from_bytes(name.to_bytes()).to_owned(),
            Some(dir) => {
                let mut path = dir.path(side).into_vec();
                join(&mut path, name.to_bytes());
                OsString::from_vec(path)
            }
        }
    }

    pub(crate) fn quoted(&self, side: Side) -> String {
        quote(self.path(side))
    }

    pub(crate) fn is_top(&self) -> bool {
        self.dir.is_none()
    }
}

/// Finishes one part of the directory; returns true for the last part.
pub(crate) fn finish_part(dir: &Dir) -> bool {
    dir.pending.fetch_sub(1, Ordering::AcqRel) == 1
}
