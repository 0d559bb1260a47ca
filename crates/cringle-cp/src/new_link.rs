//! Makes hard and symbolic links, under a free name or in the place of an existing one.

use crate::replace::is_append_only_dir;
use crate::sys::{self, Place};
use crate::tree::Item;
use crate::workers::Worker;
use std::ffi::CStr;
use std::io;

/// A link to make.
#[derive(Clone, Copy)]
pub(crate) enum NewLink<'a> {
    Hard { to: Place<'a>, follow: bool },
    Symbolic(&'a CStr),
}

impl NewLink<'_> {
    /// Makes the link; fails if the name exists.
    fn call(&self, place @ (dir, name): Place<'_>) -> io::Result<()> {
        match *self {
            NewLink::Hard { to, follow } => sys::link_at(to, place, follow),
            NewLink::Symbolic(text) => sys::symlink_at(text, dir, name),
        }
    }

    /// Makes the link under a name that was free. A link that was made counts although the call
    /// failed: a server that performs a repeated request again (NFS) answers `EEXIST`.
    fn make(&self, place: Place<'_>) -> io::Result<()> {
        self.call(place).or_else(|e| if self.is_at(place) { Ok(()) } else { Err(e) })
    }

    fn is_at(&self, (dir, name): Place<'_>) -> bool {
        match *self {
            NewLink::Hard { to, follow } => {
                sys::same(sys::stat_at(dir, name, false), sys::stat_at(to.0, to.1, follow))
            }
            NewLink::Symbolic(text) => sys::read_link_at(dir, name).is_ok_and(|at| *at == *text),
        }
    }
}

impl Worker<'_> {
    /// Makes a link. If the name exists and `replaces`, makes it under a temporary name and renames
    /// that. `existed`: the name was found before. Returns whether it was replaced.
    pub(crate) fn make_link(
        &self,
        item: &Item<'_>,
        link: NewLink<'_>,
        (existed, replaces): (bool, bool),
    ) -> io::Result<bool> {
        let dir = item.target_dir;
        let to = (dir, item.target);
        match if existed { link.call(to) } else { link.make(to) } {
            Err(e) if replaces && e.raw_os_error() == Some(libc::EEXIST) => {
                if is_append_only_dir(item) {
                    return Err(io::Error::from_raw_os_error(libc::EPERM));
                }
                let make = |name: &CStr| link.make((dir, name));
                let ((), temporary) = self.shared.temporaries.make(item.target, make)?;
                let renamed = sys::rename_at((dir, &temporary), to);
                // Renaming a link onto another link to the same file does nothing, and leaves both
                // names.
                let _ = sys::unlink_at(dir, &temporary);
                renamed.map(|()| true)
            }
            answer => answer.map(|()| false),
        }
    }
}
