//! Decides which existing files are replaced by a new file and which are written in place.
//!
//! A file is replaced if only its inode number differs afterwards. A file with anything that a new
//! file would lack is written in place: other names, set-id bits, attributes and ACLs, flags
//! (`chattr`), a project, a mount on it. Nor is a temporary name created in a directory that would
//! keep it.

use crate::compare::split;
use crate::destination::{Destination, Exclusion};
use crate::fsync::Rename;
use crate::sys::{self, Stat};
use crate::tree::Item;
use crate::workers::Worker;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

impl Worker<'_> {
    /// Creates the file that will replace this one; `None` if it has to be written in place.
    pub(crate) fn make_replacement(
        &self,
        item: &Item<'_>,
        existing: &OwnedFd,
    ) -> Option<Destination> {
        let old = sys::stat_at(item.target_dir, item.target, false).ok()?;
        if !is_plain(item, existing, &old) || is_append_only_dir(item) {
            return None;
        }
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let open = |name: &CStr| sys::open_at(item.target_dir, name, flags, 0o600);
        let (file, temporary) = self.shared.temporaries.make(item.target, open).ok()?;
        let rename = Rename { temporary, name: item.target.to_owned(), keep_existing: false };
        if !resembles(&file, existing, &old) {
            rename.remove(item.target_dir, self.reporter());
            return None;
        }
        let exclusion = Exclusion::None;
        Some(Destination { file, rename: Some(rename), made: false, exclusion })
    }
}

/// Returns whether a name that is created beside the target could not be removed again.
pub(crate) fn is_append_only_dir(item: &Item<'_>) -> bool {
    if item.dir.is_some() {
        return sys::is_append_only(item.target_dir, c"");
    }
    sys::is_append_only(item.target_dir, &sys::c_string(directory_of(item.target.to_bytes())))
}

/// Returns the directory part of a path: without the last name and the slashes before it.
pub(crate) fn directory_of(path: &[u8]) -> &[u8] {
    match split(path).0 {
        [] => b".",
        root @ [_] => root,
        [above @ .., _] => above,
    }
}

/// Returns whether the old file has nothing that a new one would lack.
fn is_plain(item: &Item<'_>, existing: &OwnedFd, old: &Stat) -> bool {
    let opened = sys::stat_of(existing.as_fd());
    sys::kind(old) == libc::S_IFREG
        && old.st_nlink == 1
        && old.st_mode & 0o6000 == 0
        && opened.is_ok_and(|opened| sys::id(&opened) == sys::id(old))
        && has_no_attributes(existing)
        && !sys::is_mount_root(item.target_dir, item.target)
}

/// Gives the new file the owner and mode of the old one. Returns false if they still differ: a
/// directory may give an ACL, flags or a project to its new files.
fn resembles(file: &OwnedFd, existing: &OwnedFd, old: &Stat) -> bool {
    let fd = file.as_fd();
    sys::chown_fd(fd, old.st_uid, old.st_gid)
        .and_then(|()| sys::chmod_fd(fd, old.st_mode & 0o1777))
        .is_ok()
        && has_no_attributes(file)
        && sys::flags_of(fd) == sys::flags_of(existing.as_fd())
}

fn has_no_attributes(file: &OwnedFd) -> bool {
    match sys::list_xattrs(file.as_fd()) {
        Ok(names) => names.is_empty(),
        Err(e) => e.raw_os_error() == Some(libc::EOPNOTSUPP),
    }
}
