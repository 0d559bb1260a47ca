//! Copies extended attributes, except ACLs, which belong to the [mode](crate::attributes).

use crate::attributes::{ACCESS, Copied, DEFAULT};
use crate::messages::{quote, reason};
use crate::options::Options;
use crate::sys;
use crate::tree::{Item, Side};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

/// Returns whether an extended attribute is left out, because it is valid only in its place: other
/// encodings of ACLs (xfs lists its own), signatures over an inode. GNU's reads the same list from
/// `/etc/xattr.conf`.
fn is_skipped(name: &CStr) -> bool {
    const BEGINNINGS: [&[u8]; 7] = [
        b"system.nfs4",
        b"trusted.SGI_",
        b"xfsroot.",
        b"user.Beagle.",
        b"security.evm",
        b"afs.",
        b"system.posix_acl_",
    ];
    BEGINNINGS.iter().any(|beginning| name.to_bytes().starts_with(beginning))
}

/// The failed step of copying extended attributes, with the name of the attribute.
enum Step {
    List,
    Get(CString),
    Set(CString),
    /// The target's file system does not support this kind of attributes.
    SetAll,
    /// Removing the write permission that setting an attribute needed.
    Restore,
}

/// The failure of one step.
pub(crate) struct Failure {
    step: Step,
    error: io::Error,
}

impl Step {
    fn failed(self, error: io::Error) -> Failure {
        Failure { step: self, error }
    }
}

/// Returns the failure to set an attribute.
fn cannot_set(name: &CStr, error: io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => Step::SetAll.failed(error),
        _ => Step::Set(name.into()).failed(error),
    }
}

/// Adds a failure; one of [`Step::SetAll`] stands for all.
fn add(failures: &mut Vec<Failure>, failure: Failure) {
    let is_whole = |failure: &Failure| matches!(failure.step, Step::SetAll);
    if !(is_whole(&failure) && failures.iter().any(is_whole)) {
        failures.push(failure);
    }
}

/// Reports the failures as far as GNU's does, and returns whether the copy is good nevertheless.
///
/// They fail the copy with `--preserve=xattr`. With `--preserve=all` they are only reported, except
/// for attributes that the target cannot have; with `-a` not even that.
pub(crate) fn report(options: &Options, item: &Item<'_>, failures: &[Failure]) -> bool {
    for failure in failures {
        let text = failure.text(item);
        if options.must_preserve_xattr {
            options.reporter.fail(&text);
        } else if options.attributes_only
            || !options.archive && !matches!(failure.step, Step::SetAll)
        {
            options.reporter.note(&text);
        }
    }
    failures.is_empty() || !options.must_preserve_xattr
}

impl Failure {
    /// Returns GNU's words: an attribute that cannot be read is a failure of the source.
    fn text(&self, item: &Item<'_>) -> String {
        let shown = |name: &CStr| quote(OsStr::from_bytes(name.to_bytes()));
        let side = |side| item.quoted(side);
        let what = match &self.step {
            Step::List => format!("listing attributes of {}", side(Side::Source)),
            Step::Get(name) => {
                format!("getting attribute {} of {}", shown(name), side(Side::Source))
            }
            Step::Set(name) => {
                format!("setting attribute {} for {}", shown(name), side(Side::Target))
            }
            Step::SetAll => format!("setting attributes for {}", side(Side::Target)),
            Step::Restore => format!("preserving permissions for {}", side(Side::Target)),
        };
        format!("{what}: {}", reason(&self.error))
    }
}

/// Copies all extended attributes except ACLs. Returns whether the source may have ACLs, and
/// the failures.
pub(crate) fn copy(copied: &Copied<'_>) -> (bool, Vec<Failure>) {
    let Copied { source, target, .. } = *copied;
    let names = match sys::list_xattrs(source) {
        Ok(names) => names,
        // A file system without lists may still have ACLs.
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => return (true, Vec::new()),
        Err(e) => return (true, vec![Step::List.failed(e)]),
    };
    let acl = each(&names).any(|name| name == ACCESS || name == DEFAULT);
    let mut failures = Vec::new();
    let mut writable = Writable { target, mode: None };
    if copied.resumed {
        failures.extend(remove_others(&mut writable, &names).err());
    }
    let set =
        |name: &CStr, value: &[u8]| writable.change(|target| sys::set_xattr(target, name, value));
    copy_each(&names, &mut failures, |name| sys::get_xattr(source, name), set);
    if let Err(e) = writable.restore() {
        failures.push(Step::Restore.failed(e));
    }
    (acl, failures)
}

/// Copies the attributes with these names, except ACLs.
fn copy_each(
    names: &[u8],
    failures: &mut Vec<Failure>,
    get: impl Fn(&CStr) -> io::Result<Vec<u8>>,
    mut set: impl FnMut(&CStr, &[u8]) -> io::Result<()>,
) {
    for name in each(names).filter(|name| !is_skipped(name)) {
        let value = get(name).map_err(|e| Step::Get(name.into()).failed(e));
        let set = |value: Vec<u8>| set(name, &value).map_err(|e| cannot_set(name, e));
        if let Err(failure) = value.and_then(set) {
            add(failures, failure);
        }
    }
}

/// Returns the names of a list, each of which ends in a zero byte.
fn each(names: &[u8]) -> impl Iterator<Item = &CStr> {
    let names = names.split_inclusive(|&byte| byte == 0);
    names.filter_map(|name| CStr::from_bytes_with_nul(name).ok())
}

/// Removes the attributes of users that the source, with these names, does not have. Those of other
/// kinds may be the file system's.
fn remove_others(writable: &mut Writable<'_>, names: &[u8]) -> Result<(), Failure> {
    let here = sys::list_xattrs(writable.target).map_err(|e| Step::List.failed(e))?;
    let is_left =
        |name: &&CStr| name.to_bytes().starts_with(b"user.") && !each(names).any(|n| n == *name);
    for name in each(&here).filter(is_left) {
        let removed = writable.change(|target| sys::remove_xattr(target, name));
        removed.map_err(|e| Step::Set(name.into()).failed(e))?;
    }
    Ok(())
}

/// A target that gets extended attributes.
///
/// The kernel checks the write permission of the file, not of the descriptor. Where the owner has
/// none, it is granted until [`restore`](Writable::restore).
struct Writable<'a> {
    target: BorrowedFd<'a>,
    /// The original mode, if it was changed.
    mode: Option<u32>,
}

impl Writable<'_> {
    /// Changes an attribute; grants the write permission first if it is missing.
    fn change(&mut self, change: impl Fn(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
        match change(self.target) {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) && self.mode.is_none() => {
                let mode = sys::stat_of(self.target)?.st_mode & 0o7777;
                if mode & 0o200 != 0 || sys::chmod_fd(self.target, mode | 0o200).is_err() {
                    return Err(e);
                }
                self.mode = Some(mode);
                change(self.target)
            }
            answer => answer,
        }
    }

    /// Removes the write permission that was granted.
    fn restore(self) -> io::Result<()> {
        self.mode.map_or(Ok(()), |mode| sys::chmod_fd(self.target, mode))
    }
}

/// Returns a path through `/proc`, for calls that take no directory descriptor.
pub(crate) fn proc_path(dir: BorrowedFd<'_>, name: &CStr) -> CString {
    if dir.as_raw_fd() == libc::AT_FDCWD {
        return name.to_owned();
    }
    sys::c_string(&[sys::proc_path(dir).to_bytes(), b"/", name.to_bytes()].concat())
}

/// Copies the extended attributes of a name that is not opened, and returns the failures. Links and
/// devices have only `trusted.` and `security.` ones.
pub(crate) fn copy_by_name(item: &Item<'_>) -> Vec<Failure> {
    let source = proc_path(item.source_dir, item.source);
    let target = proc_path(item.target_dir, item.target);
    let mut failures = Vec::new();
    // The file system has no extended attributes, or `/proc` is not mounted.
    let names = sys::llist_xattrs(&source).unwrap_or_default();
    let get = |name: &CStr| sys::lget_xattr(&source, name);
    copy_each(&names, &mut failures, get, |name, value| sys::lset_xattr(&target, name, value));
    failures
}
