//! Tells what the copy has created from what is the user's.
//!
//! Each name is recorded with its type before it is created. Only regular files in a directory that
//! the copy creates have no such record: what has the name of a source there is the copy's.

use super::manifest::Kind;
use super::{Resume, kind_of};
use crate::listing::Entry;
use crate::plan::Copy;
use crate::sys::{self, Stat};
use crate::tree::{Dir, Item, Side};
use crate::workers::{Shared, Worker};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

impl Resume {
    /// Records the names of the command line that do not exist yet, with one write for all.
    pub(crate) fn announce_named(&self, shared: &Shared, copies: &[Copy]) {
        let follow = shared.options.follows(true);
        let names = copies.iter().filter_map(|copy| {
            let [source, target] =
                [&copy.source, &copy.target].map(|name| sys::c_string(name.as_bytes()));
            if sys::stat_at(sys::CWD, &target, false).is_ok() {
                return None;
            }
            let stat = sys::stat_at(sys::CWD, &source, follow).ok()?;
            let is_left_out = sys::kind(&stat) == libc::S_IFDIR && !shared.options.recursive;
            let key = self.keys.of_command_line(source.to_bytes(), target.to_bytes());
            (!is_left_out).then(|| (key, kind_of(becomes(shared, &stat))))
        });
        self.announce(shared, &names.collect::<Vec<_>>());
    }
}

/// Returns the type that the copy of the source has.
fn becomes(shared: &Shared, source: &Stat) -> u32 {
    match sys::kind(source) {
        kind @ (libc::S_IFLNK | libc::S_IFDIR) => kind,
        _ if shared.options.as_regular => libc::S_IFREG,
        kind => kind,
    }
}

impl Worker<'_> {
    /// Records what is about to be created. Returns false if the manifest cannot be written, which
    /// has been reported.
    pub(crate) fn announce(&self, key: u128, file_type: u32) -> bool {
        let resume = self.shared.resume.as_ref();
        resume.is_none_or(|resume| resume.announce(self.shared, &[(key, kind_of(file_type))]))
    }

    /// The same for a regular file, which usually has been recorded with others.
    pub(crate) fn announce_file(&self, item: &Item<'_>) -> bool {
        let is_needed = self.shared.resume.is_some() && item.dir.is_none_or(|dir| !dir.made);
        !is_needed || self.announce(self.key_of(item), libc::S_IFREG)
    }

    /// Records the entries that do not exist yet, with one write for all.
    pub(crate) fn announce_all(&self, dir: &Arc<Dir>, entries: &[Entry]) {
        let Some(resume) = &self.shared.resume else { return };
        let open = |side| dir.fd(side, &self.shared.open);
        let (Ok(source), Ok(target)) = (open(Side::Source), open(Side::Target)) else { return };
        let follow = self.shared.options.follows(false);
        let kind = |entry: &Entry| -> Option<Kind> {
            if entry.kind == libc::DT_UNKNOWN || follow && entry.kind == libc::DT_LNK {
                let stat = sys::stat_at(source.as_fd(), &entry.name, follow).ok()?;
                return Some(kind_of(becomes(self.shared, &stat)));
            }
            Some(entry.kind)
        };
        let is_new = |entry: &Entry| sys::stat_at(target.as_fd(), &entry.name, false).is_err();
        let names = entries.iter().filter_map(|entry| {
            let kind = kind(entry).filter(|&kind| !(dir.made && kind == libc::DT_REG))?;
            is_new(entry).then(|| (resume.keys.below(dir.key, entry.name.to_bytes()), kind))
        });
        resume.announce(self.shared, &names.collect::<Vec<_>>());
    }

    /// Returns whether a regular file under this name has been created by an earlier run.
    pub(super) fn has_created(&self, resume: &Resume, item: &Item<'_>) -> bool {
        item.dir.is_some_and(|dir| dir.made) || resume.has_made(self.key_of(item), libc::S_IFREG)
    }

    /// Removes a link or special file that an earlier run has created under this name, if the
    /// source has another type now: a copy would be written through the link, or into the device.
    /// In a directory that the copy has created, no link is written through. Returns false after an
    /// error, which has been reported.
    pub(crate) fn remove_own_of_other_type(&self, item: &Item<'_>, stat: &Stat) -> bool {
        let resume = self.shared.resume.as_ref();
        let Some(resume) = resume.filter(|resume| resume.has_earlier()) else { return true };
        let Ok(target) = sys::stat_at(item.target_dir, item.target, false) else { return true };
        let (is, becomes) = (sys::kind(&target), becomes(self.shared, stat));
        let in_own = item.dir.is_some_and(|dir| dir.made);
        let leads_elsewhere = in_own && is == libc::S_IFLNK && becomes == libc::S_IFREG;
        if matches!(is, libc::S_IFREG | libc::S_IFDIR)
            || is == becomes
            || !(leads_elsewhere || resume.has_made(self.key_of(item), is))
        {
            return true;
        }
        sys::unlink_at(item.target_dir, item.target)
            .inspect_err(|e| {
                self.reporter().fail_on("cannot remove", item.quoted(Side::Target), e);
            })
            .is_ok()
    }
}
