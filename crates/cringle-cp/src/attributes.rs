//! Copies mode, ownership, times and extended attributes.
//!
//! The order lets no step undo another: times first; then ownership, which clears set-uid bits;
//! then extended attributes; then the mode together with the ACLs. A target that preserves the mode
//! has exactly the ACLs of its source, even in a directory whose default ACL would add some.

use crate::options::Options;
use crate::sys::{self, Stat};
use crate::tree::{Item, Side};
use crate::xattrs::{self, proc_path};
use std::cell::Cell;
use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

pub(crate) const ACCESS: &CStr = c"system.posix_acl_access";
pub(crate) const DEFAULT: &CStr = c"system.posix_acl_default";

/// Returns the mode with which a file is created; a preserved mode is set at the end.
pub(crate) fn first_mode(options: &Options, stat: &Stat) -> u32 {
    let mode = stat.st_mode & 0o777;
    let keeps = options.preserve;
    if options.no_preserve_mode {
        0o666
    } else if keeps.mode || keeps.ownership {
        // Other users cannot open the file before it has its owner.
        mode & 0o700
    } else {
        mode
    }
}

/// A file or directory that is open on both sides.
pub(crate) struct Copied<'a> {
    pub(crate) item: &'a Item<'a>,
    pub(crate) source: BorrowedFd<'a>,
    pub(crate) target: BorrowedFd<'a>,
    pub(crate) stat: &'a Stat,
    /// This copy created the target.
    pub(crate) made: bool,
    /// The target existed before, or its directory has a default ACL.
    pub(crate) may_have_acl: bool,
    /// An earlier run of this copy created the target: what its source no longer has is removed.
    pub(crate) resumed: bool,
}

/// Returns whether the directory has an ACL, for itself or for its new files.
pub(crate) fn has_acl(directory: BorrowedFd<'_>) -> bool {
    let has = |name| sys::get_xattr(directory, name).is_ok_and(|value| !value.is_empty());
    has(ACCESS) || has(DEFAULT)
}

/// Returns whether files that are created in this directory inherit an ACL.
pub(crate) fn gives_default_acl(directory: BorrowedFd<'_>) -> bool {
    sys::get_xattr(directory, DEFAULT).is_ok_and(|value| !value.is_empty())
}

/// The result of [`apply`].
#[derive(PartialEq, Eq)]
pub(crate) enum Applied {
    Good,
    Failed,
    /// A call failed with an error that an earlier write may have caused: some file systems (NFS,
    /// FUSE) write back before they change attributes, and report a failed write only there.
    DataLost,
}

/// Sets the attributes of a file or directory that is open on both sides.
pub(crate) fn apply(options: &Options, copied: &Copied<'_>) -> Applied {
    let lost = Cell::new(false);
    let good = apply_each(options, copied, &lost);
    match good {
        _ if lost.get() && is_file(copied.stat) => Applied::DataLost,
        true => Applied::Good,
        false => Applied::Failed,
    }
}

/// Sets the attributes in order. `lost` is set by an error that an earlier write may have caused.
fn apply_each(options: &Options, copied: &Copied<'_>, lost: &Cell<bool>) -> bool {
    let keeps = options.preserve;
    let Copied { item, target, stat, made, may_have_acl, .. } = *copied;
    let name = || item.quoted(Side::Target);
    let mut good = true;
    let noted =
        |answer: io::Result<()>| answer.inspect_err(|e| lost.set(lost.get() || may_be_of_data(e)));
    if keeps.timestamps
        && let Err(e) = noted(sys::set_times_fd(target, stat))
    {
        options.reporter.fail_on("preserving times for", name(), &e);
        if options.must_preserve {
            return false;
        }
    }
    let mut has_owner = true;
    if keeps.ownership {
        let chown = |uid, gid| noted(sys::chown_fd(target, uid, gid));
        match set_owner(options, stat, chown, &name) {
            Some(kept) => has_owner = kept,
            None => return false,
        }
    }
    let mut has_acl = keeps.mode && !keeps.xattr;
    if keeps.xattr {
        let (acl, failures) = xattrs::copy(copied);
        has_acl = acl;
        good &= xattrs::report(options, item, &failures);
    }
    if keeps.mode {
        let mode = match (keeps.ownership, has_owner) {
            (true, true) => stat.st_mode & 0o7777,
            (true, false) => stat.st_mode & 0o777,
            (false, _) => stat.st_mode & !set_ids_of_others(target, stat) & 0o7777,
        };
        if let Err(e) = noted(set_mode(copied, mode, has_acl)) {
            options.reporter.fail_on("preserving permissions for", name(), &e);
            good &= !options.must_preserve;
        }
    } else if made && options.no_preserve_mode && may_have_acl {
        good &= plain_mode(options, copied);
    } else if made && !options.no_preserve_mode && is_file(stat) {
        // The file was created with fewer permissions until it had its owner. GNU's also lets users
        // write to it until it has its attributes, which a default ACL makes visible.
        let mode = stat.st_mode & 0o777 & !options.umask;
        let is_for_xattr =
            || keeps.xattr && stat.st_mode & 0o200 == 0 && sys::effective_user() != 0;
        if (keeps.ownership && mode & 0o077 != 0 || is_for_xattr())
            && let Err(e) = sys::chmod_fd(target, mode)
        {
            options.reporter.fail_on("preserving permissions for", name(), &e);
            good = false;
        }
    }
    good
}

/// Returns whether the error may belong to data that were written earlier.
fn may_be_of_data(error: &io::Error) -> bool {
    let errors = [libc::EIO, libc::ENOSPC, libc::EDQUOT, libc::EFBIG];
    error.raw_os_error().is_some_and(|code| errors.contains(&code))
}

fn is_file(stat: &Stat) -> bool {
    sys::kind(stat) != libc::S_IFDIR
}

/// Returns the set-id bits that the copy must not have, because they would grant the rights of the
/// user who copies. The set-group-id bit of a directory grants none.
fn set_ids_of_others(target: BorrowedFd<'_>, stat: &Stat) -> u32 {
    if stat.st_mode & 0o6000 == 0 {
        return 0;
    }
    let Ok(made) = sys::stat_of(target) else { return 0o6000 };
    let user = if made.st_uid == stat.st_uid { 0 } else { 0o4000 };
    let group = if made.st_gid == stat.st_gid || !is_file(stat) { 0 } else { 0o2000 };
    user | group
}

/// Returns whether the ownership was preserved; `None` after a failure, which has been reported.
fn set_owner(
    options: &Options,
    stat: &Stat,
    chown: impl Fn(u32, u32) -> io::Result<()>,
    name: &dyn Fn() -> String,
) -> Option<bool> {
    let Err(e) = chown(stat.st_uid, stat.st_gid) else { return Some(true) };
    let permitted = !matches!(e.raw_os_error(), Some(libc::EPERM | libc::EINVAL));
    if !permitted && sys::effective_user() != 0 {
        // Only root may give files away; but the group may be one of the user's.
        let _ = chown(u32::MAX, stat.st_gid);
        return Some(false);
    }
    options.reporter.fail_on("failed to preserve ownership for", name(), &e);
    if options.must_preserve { None } else { Some(false) }
}

/// Sets the mode, and the ACLs that belong to it.
fn set_mode(copied: &Copied<'_>, mode: u32, has_acl: bool) -> io::Result<()> {
    let Copied { source, target, stat, may_have_acl, .. } = *copied;
    let names: &[&CStr] = if is_file(stat) { &[ACCESS] } else { &[ACCESS, DEFAULT] };
    // With a mode but without its ACL the copy would grant other rights: an error here is a
    // failure.
    let acl_of_source = |name| match has_acl.then(|| sys::get_xattr(source, name)) {
        Some(Ok(value)) if !value.is_empty() => Ok(Some(value)),
        Some(Err(e)) if !matches!(e.raw_os_error(), Some(libc::ENODATA | libc::EOPNOTSUPP)) => {
            Err(e)
        }
        _ => Ok(None),
    };
    let acls = names.iter().map(|name| Ok((*name, acl_of_source(*name)?)));
    let acls = acls.collect::<io::Result<Vec<_>>>()?;
    for (name, value) in &acls {
        if value.is_none() && may_have_acl {
            sys::remove_xattr(target, name)?;
        }
    }
    sys::chmod_fd(target, mode)?;
    for (name, value) in acls {
        if let Some(value) = value {
            sys::set_xattr(target, name, &value)?;
        }
    }
    Ok(())
}

/// Returns the mode that the umask gives. A directory keeps the set-group-id bit that it got from
/// the directory in which it was made.
pub(crate) fn usual_mode(options: &Options, source: &Stat, made: u32) -> u32 {
    match sys::kind(source) {
        libc::S_IFDIR => 0o777 & !options.umask | source.st_mode & 0o1000 | made & 0o2000,
        libc::S_IFSOCK => 0o777 & !options.umask,
        _ => 0o666 & !options.umask,
    }
}

/// Sets the mode that the umask gives, for `--no-preserve=mode` in a directory with a default ACL.
fn plain_mode(options: &Options, copied: &Copied<'_>) -> bool {
    let Copied { item, target, stat, .. } = *copied;
    let done = sys::remove_xattr(target, ACCESS)
        .and_then(|()| sys::stat_of(target))
        .and_then(|made| sys::chmod_fd(target, usual_mode(options, stat, made.st_mode)));
    if let Err(e) = &done {
        options.reporter.fail_on("preserving permissions for", item.quoted(Side::Target), e);
    }
    done.is_ok()
}

/// Sets the attributes of a file that is not opened: a link, a FIFO, a device, an unreadable
/// directory.
pub(crate) fn apply_by_name(options: &Options, item: &Item<'_>, stat: &Stat, made: bool) -> bool {
    let keeps = options.preserve;
    let name = || item.quoted(Side::Target);
    let mut good = true;
    if keeps.timestamps
        && let Err(e) = sys::set_times_at(item.target_dir, item.target, stat)
    {
        options.reporter.fail_on("preserving times for", name(), &e);
        if options.must_preserve {
            return false;
        }
    }
    let mut kept = true;
    if keeps.ownership {
        let chown = |uid, gid| sys::chown_at(item.target_dir, item.target, uid, gid);
        match set_owner(options, stat, chown, &name) {
            Some(owner) => kept = owner,
            None => return false,
        }
    }
    if keeps.xattr {
        good &= xattrs::report(options, item, &xattrs::copy_by_name(item));
    }
    let is_link = sys::kind(stat) == libc::S_IFLNK;
    let gets_mode = made && (options.no_preserve_mode || keeps.ownership && is_file(stat));
    if !is_link && (keeps.mode || gets_mode) {
        let made = || sys::stat_at(item.target_dir, item.target, false).map_or(0, |t| t.st_mode);
        let mode = match (keeps.mode, options.no_preserve_mode, kept) {
            (true, _, true) => stat.st_mode & 0o7777,
            (true, _, false) => stat.st_mode & 0o777,
            (_, true, _) => usual_mode(options, stat, made()),
            // It was created with fewer permissions until it had its owner.
            _ => made() & 0o7777 | stat.st_mode & 0o077 & !options.umask,
        };
        let chmod = || sys::chmod_at(item.target_dir, item.target, mode);
        let acl = keeps.mode || options.no_preserve_mode;
        let is_inherited = is_file(stat) || !keeps.mode;
        let names: &[&CStr] = if is_inherited { &[ACCESS] } else { &[ACCESS, DEFAULT] };
        if let Err(e) = if acl { with_acls(keeps.mode, names, item, chmod) } else { chmod() } {
            options.reporter.fail_on("preserving permissions for", name(), &e);
            good &= !options.must_preserve;
        }
    }
    good
}

/// Sets the mode, and the ACLs of the source; without `keeps`, removes the ACLs.
fn with_acls(
    keeps: bool,
    names: &[&CStr],
    item: &Item<'_>,
    chmod: impl Fn() -> io::Result<()>,
) -> io::Result<()> {
    let (source, target) =
        (proc_path(item.source_dir, item.source), proc_path(item.target_dir, item.target));
    let of_source = |name| if keeps { sys::lget_xattr(&source, name).ok() } else { None };
    let acls: Vec<_> = names.iter().map(|name| (*name, of_source(*name))).collect();
    let has = |value: &Option<Vec<u8>>| value.as_ref().is_some_and(|value| !value.is_empty());
    for (name, _) in acls.iter().filter(|(_, value)| !has(value)) {
        match sys::lremove_xattr(&target, name) {
            // `/proc` is not mounted. The new file has no ACL that this copy has set.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
            answer => answer?,
        }
    }
    chmod()?;
    for (name, value) in acls.iter().filter(|(_, value)| has(value)) {
        sys::lset_xattr(&target, name, value.as_deref().unwrap_or_default())?;
    }
    Ok(())
}
