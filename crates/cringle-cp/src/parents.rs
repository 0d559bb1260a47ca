//! `--parents`: creates the directories above a target, and sets their attributes at the end.

use crate::attributes::{self, Copied};
use crate::compare::last_part;
use crate::messages::quote;
use crate::options::Options;
use crate::plan::{Copy, without_slashes};
use crate::sys::{self, Stat};
use crate::tree::{Item, Side, open_side};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// A directory that `--parents` created or found, and its source.
pub(crate) struct Parent {
    source: OsString,
    target: OsString,
    made: bool,
    /// The mode to set at the end, if the directory was created with another one.
    final_mode: Option<u32>,
    /// The identity of the target: its name may lead elsewhere by the time it gets its attributes.
    id: (u64, u64),
}

/// Creates the directories above the target. Returns `None` if that failed, which has been
/// reported.
pub(crate) fn make_parents(options: &Options, copy: &Copy) -> Option<Vec<Parent>> {
    let Some(below) = &copy.below else { return Some(Vec::new()) };
    let source = without_slashes(&copy.source);
    let (source, target) = (source.as_bytes(), copy.target.as_bytes());
    // If all parents exist, they stay as they are.
    let above = target.iter().rposition(|&byte| byte == b'/').map_or(&b"."[..], |at| &target[..at]);
    if sys::stat_at(sys::CWD, &sys::c_string(above), true).is_ok() {
        return Some(Vec::new());
    }
    // Source and target end alike: in the part of the source's name that is created below the
    // directory.
    let common = target.len()
        - (below.len() + usize::from(!below.as_bytes().ends_with(b"/"))).min(target.len());
    let first = source.len() - common.min(source.len());
    let slashes = source.iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at > first);
    let parents = slashes.map(|(at, _)| {
        let target = &target[..target.len() - (source.len() - at)];
        find_or_make(options, OsStr::from_bytes(&source[..at]), OsStr::from_bytes(target))
    });
    parents.collect()
}

/// Finds the directory, or creates it. Reports a failure.
fn find_or_make(options: &Options, source: &OsStr, target: &OsStr) -> Option<Parent> {
    let reporter = &options.reporter;
    let stat = match sys::stat_at(sys::CWD, &sys::c_string(source.as_bytes()), true) {
        Ok(stat) if sys::kind(&stat) == libc::S_IFDIR => Ok(stat),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
        Err(e) => Err(e),
    };
    let failed = |e: &_| reporter.fail_on("failed to get attributes of", quote(source), e);
    let stat = stat.inspect_err(failed).ok()?;
    let mut parent = Parent {
        source: source.to_owned(),
        target: target.to_owned(),
        made: false,
        final_mode: None,
        id: (0, 0),
    };
    match sys::stat_at(sys::CWD, &sys::c_string(target.as_bytes()), true) {
        Ok(existing) if sys::kind(&existing) == libc::S_IFDIR => parent.id = sys::id(&existing),
        Ok(_) => {
            reporter.fail(&format!("{} exists but is not a directory", quote(target)));
            return None;
        }
        Err(_) => parent.make(options, &stat)?,
    }
    Some(parent)
}

impl Parent {
    fn make(&mut self, options: &Options, source: &Stat) -> Option<()> {
        let keeps = options.preserve;
        let omitted = match (keeps.ownership, keeps.mode) {
            (true, _) => source.st_mode & 0o077,
            (false, true) => source.st_mode & 0o022,
            (false, false) => 0,
        };
        let all = if options.no_preserve_mode { 0o777 } else { source.st_mode & 0o1777 };
        let mode = all & !omitted;
        let path = sys::c_string(self.target.as_bytes());
        if let Err(e) = sys::mkdir_at(sys::CWD, &path, mode | 0o700) {
            options.reporter.fail_on("cannot make directory", quote(&self.target), &e);
            return None;
        }
        self.made = true;
        let made = sys::stat_at(sys::CWD, &path, false);
        self.id = made.as_ref().map_or((0, 0), sys::id);
        let made = made.map_or(mode, |made| made.st_mode) & 0o7777;
        let wanted = made & (mode | !0o700) | omitted & !options.umask;
        let needed = made | 0o700;
        if needed != made {
            // A strict umask removed what filling the directory needs.
            let _ = sys::chmod_at(sys::CWD, &path, needed);
        }
        if wanted != needed {
            self.final_mode = Some(wanted);
        }
        if options.verbose {
            options.reporter.print(&format!(
                "{} -> {}",
                String::from_utf8_lossy(self.source.as_bytes()),
                String::from_utf8_lossy(self.target.as_bytes())
            ));
        }
        Some(())
    }

    /// Opens the target, if it is still the same directory, and returns the status of the source.
    fn open(&self) -> io::Result<(Stat, OwnedFd)> {
        let stat = sys::stat_at(sys::CWD, &sys::c_string(self.source.as_bytes()), true)?;
        let target = sys::c_string(self.target.as_bytes());
        let target = open_side(Side::Target, sys::CWD, &target, true)?;
        if sys::id(&sys::stat_of(&target)?) != self.id {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        Ok((stat, target))
    }

    /// Sets the preserved attributes. A source that cannot be opened has no ACLs that can be read.
    fn apply(&self, options: &Options, stat: &Stat, target: &OwnedFd) -> bool {
        let (source, name) =
            (sys::c_string(self.source.as_bytes()), sys::c_string(self.target.as_bytes()));
        let item = Item::of_command_line(&source, &name);
        let opened = open_side(Side::Source, sys::CWD, &source, true)
            .ok()
            .filter(|fd| sys::stat_of(fd).is_ok_and(|now| sys::id(&now) == sys::id(stat)));
        let Some(opened) = opened else {
            return attributes::apply_by_name(options, &item, stat, false);
        };
        let copied = Copied {
            item: &item,
            source: opened.as_fd(),
            target: target.as_fd(),
            stat,
            // New or not, its final mode is set afterwards.
            made: false,
            may_have_acl: true,
            resumed: false,
        };
        attributes::apply(options, &copied) == attributes::Applied::Good
    }

    /// Sets the attributes, and syncs the directory with `--fsync`.
    fn finish(&self, options: &Options) -> bool {
        let keeps = options.preserve;
        let keeps_any = keeps.mode || keeps.ownership || keeps.timestamps || keeps.xattr;
        if !keeps_any && self.final_mode.is_none() && !options.fsync {
            return true;
        }
        let failed = |what| move |e: &_| options.reporter.fail_on(what, quote(&self.target), e);
        let opened = self.open().inspect_err(failed("failed to preserve times for"));
        let Ok((stat, target)) = opened else { return false };
        let mut good = !keeps_any || self.apply(options, &stat, &target);
        if !keeps.mode
            && let Some(mode) = self.final_mode
        {
            let _ = sys::chmod_fd(target.as_fd(), mode);
        }
        // One that may not be read was opened by its path, and cannot be synced.
        let unreadable = |e: io::Error| match e.raw_os_error() {
            Some(libc::EBADF) => io::Error::from_raw_os_error(libc::EACCES),
            _ => e,
        };
        if options.fsync {
            let synced = sys::sync_fd(&target).map_err(unreadable);
            good &= synced.inspect_err(failed("error syncing")).is_ok();
        }
        good
    }
}

/// Returns the topmost directory that was created; its parent has a new entry.
pub(crate) fn first_made(parents: &[Parent]) -> Option<&OsStr> {
    parents.iter().find(|parent| parent.made).map(|parent| &*parent.target)
}

/// Fails if the last component is `.` or `..` and its target was just created by `--parents`, so
/// that it cannot be created again.
pub(crate) fn ends_in_made(options: &Options, copy: &Copy, parents: &[Parent]) -> bool {
    let name = last_part(copy.source.as_bytes());
    let in_made = options.recursive
        && matches!(name, b"." | b"..")
        && parents.last().is_some_and(|parent| parent.made);
    if in_made {
        let e = io::Error::from_raw_os_error(libc::EEXIST);
        options.reporter.fail_on("cannot create directory", quote(&copy.target), &e);
    }
    in_made
}

/// Sets the attributes of the directories above the target; returns whether all were set.
pub(crate) fn finish_parents(options: &Options, parents: &[Parent]) -> bool {
    // `&`, not `&&`: each directory is finished.
    parents.iter().rev().fold(true, |good, parent| good & parent.finish(options))
}
