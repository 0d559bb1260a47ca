//! Maps each source to its target: GNU's rules for the last name, `-t`, `-T` and `--parents`.

use crate::attributes::{self, Copied};
use crate::compare::last_part;
use crate::messages::{quote, reason};
use crate::options::{Options, Replace};
use crate::request::Request;
use crate::sys;
use crate::tree::{Item, Side, join, open_side};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) source: OsString,
    pub(crate) target: OsString,
    /// With `--parents`: the directory that the sources are copied into.
    pub(crate) below: Option<OsString>,
}

/// A usage error.
#[derive(Debug)]
pub(crate) struct Usage {
    pub(crate) text: String,
    /// Print a hint at `--help` after the text.
    pub(crate) hint: bool,
}

impl Usage {
    pub(crate) fn hinted(text: impl Into<String>) -> Usage {
        Usage { text: text.into(), hint: true }
    }

    pub(crate) fn plain(text: impl Into<String>) -> Usage {
        Usage { text: text.into(), hint: false }
    }
}

impl From<String> for Usage {
    fn from(text: String) -> Usage {
        Usage::hinted(text)
    }
}

impl From<&str> for Usage {
    fn from(text: &str) -> Usage {
        Usage::hinted(text)
    }
}

/// Returns why a path is not a directory to copy into; `None` if it is one.
fn not_a_directory(path: &OsStr) -> Option<std::io::Error> {
    match sys::stat_at(sys::CWD, &sys::c_string(path.as_bytes()), true) {
        Ok(stat) if sys::kind(&stat) == libc::S_IFDIR => None,
        Ok(_) => Some(std::io::Error::from_raw_os_error(libc::ENOTDIR)),
        Err(e) => Some(e),
    }
}

/// Returns the target of each source.
pub(crate) fn plan(request: &Request) -> Result<Vec<Copy>, Usage> {
    let options = &request.options;
    let mut names = request.names.clone();
    let least = if request.target_directory.is_some() { 1 } else { 2 };
    if names.len() < least {
        return match names.first() {
            None => Err("missing file operand".into()),
            Some(only) => {
                Err(format!("missing destination file operand after {}", quote(only)).into())
            }
        };
    }
    if options.no_target_directory {
        if request.target_directory.is_some() {
            return Err(Usage::plain(
                "cannot combine --target-directory (-t) and --no-target-directory (-T)",
            ));
        }
        if names.len() > 2 {
            return Err(format!("extra operand {}", quote(&names[2])).into());
        }
        return single(options, names);
    }
    if let Some(directory) = &request.target_directory {
        if let Some(e) = not_a_directory(directory) {
            let text = format!("target directory {}: {}", quote(directory), reason(&e));
            return Err(Usage::plain(text));
        }
        return Ok(into(options, names, directory));
    }
    let last = names[names.len() - 1].clone();
    match not_a_directory(&last) {
        None => {
            names.pop();
            Ok(into(options, names, &last))
        }
        Some(e) if names.len() > 2 => {
            Err(Usage::plain(format!("target {}: {}", quote(&last), reason(&e))))
        }
        Some(_) => single(options, names),
    }
}

/// The number of sources from which threads are worth their start.
const FEW: usize = 64;

/// Returns whether several threads can copy the sources in any order: nothing is asked or printed,
/// no source is a directory (whose entries have threads of their own), no two have the same target
/// (where the first one wins) or targets that are one file, and no source is a target of another
/// one.
pub(crate) fn in_any_order(options: &Options, copies: &[Copy]) -> bool {
    let plain = !options.verbose
        && !options.parents
        && options.backup.is_none()
        && options.replace != Replace::Ask;
    plain && copies.len() >= FEW && have_nothing_in_common(options, copies)
}

fn have_nothing_in_common(options: &Options, copies: &[Copy]) -> bool {
    let (mut targets, mut written) = (HashSet::new(), HashSet::new());
    let look =
        |path: &OsStr, follow| sys::stat_at(sys::CWD, &sys::c_string(path.as_bytes()), follow);
    let are_apart = copies.iter().all(|copy| {
        let there = look(&copy.target, false).ok();
        written.extend(there.iter().map(sys::id));
        targets.insert(&copy.target)
            && there.is_none_or(|there| sys::kind(&there) != libc::S_IFLNK && there.st_nlink == 1)
    });
    // A dangling link may lead to a file that another source creates.
    are_apart
        && copies.iter().all(|copy| match look(&copy.source, true) {
            Ok(stat) if sys::kind(&stat) == libc::S_IFDIR => !options.recursive,
            Ok(stat) => !written.contains(&sys::id(&stat)),
            Err(_) => look(&copy.source, false).is_err(),
        })
}

fn single(options: &Options, names: Vec<OsString>) -> Result<Vec<Copy>, Usage> {
    if options.parents {
        return Err("with --parents, the destination must be a directory".into());
    }
    // As with GNU's, `--strip-trailing-slashes` affects only sources that go into a directory.
    Ok(vec![Copy { source: names[0].clone(), target: names[1].clone(), below: None }])
}

fn into(options: &Options, names: Vec<OsString>, directory: &OsStr) -> Vec<Copy> {
    let copy = |name: OsString| {
        let source = if options.strip_slashes { without_slashes(&name) } else { name };
        let bare = without_slashes(&source);
        let mut target = directory.as_bytes().to_vec();
        if options.parents {
            let all = bare.as_bytes();
            let start = all.iter().position(|&byte| byte != b'/').unwrap_or(all.len());
            join(&mut target, &all[start..]);
        } else {
            let base = bare.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            if base != b".." && !base.is_empty() {
                join(&mut target, base);
            }
        }
        let below = options.parents.then(|| directory.to_owned());
        Copy { source, target: OsString::from_vec(target), below }
    };
    names.into_iter().map(copy).collect()
}

/// Returns the name without trailing slashes; `/` stays.
fn without_slashes(name: &OsStr) -> OsString {
    let bytes = name.as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(bytes.len().min(1), |at| at + 1);
    OsStr::from_bytes(&bytes[..end]).to_owned()
}

/// A directory that `--parents` created or found, and its source.
pub(crate) struct Parent {
    source: OsString,
    target: OsString,
    made: bool,
    final_mode: Option<u32>,
    /// The identity of the target: its name may lead elsewhere by the time it gets its attributes.
    id: (u64, u64),
}

/// Creates the directories above the target. Returns `None` if that failed, which has been
/// reported.
pub(crate) fn make_parents(options: &Options, copy: &Copy) -> Option<Vec<Parent>> {
    let mut parents = Vec::new();
    let Some(below) = &copy.below else { return Some(parents) };
    let source = without_slashes(&copy.source);
    let (source, target) = (source.as_bytes(), copy.target.as_bytes());
    // If all parents exist, they stay as they are.
    let above = target.iter().rposition(|&byte| byte == b'/').map_or(&b"."[..], |at| &target[..at]);
    if sys::stat_at(sys::CWD, &sys::c_string(above), true).is_ok() {
        return Some(parents);
    }
    // Source and target end alike: in the part of the source's name that is created below the
    // directory.
    let common = target.len()
        - (below.len() + usize::from(!below.as_bytes().ends_with(b"/"))).min(target.len());
    let first = source.len() - common.min(source.len());
    for (at, _) in source.iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at > first) {
        let from = OsStr::from_bytes(&source[..at]).to_owned();
        let to = OsStr::from_bytes(&target[..target.len() - (source.len() - at)]).to_owned();
        let stat = match sys::stat_at(sys::CWD, &sys::c_string(from.as_bytes()), true) {
            Ok(stat) => stat,
            Err(e) => {
                options
                    .reporter
                    .fail_with(&format!("failed to get attributes of {}", quote(&from)), &e);
                return None;
            }
        };
        if sys::kind(&stat) != libc::S_IFDIR {
            let e = std::io::Error::from_raw_os_error(libc::ENOTDIR);
            options
                .reporter
                .fail_with(&format!("failed to get attributes of {}", quote(&from)), &e);
            return None;
        }
        let path = sys::c_string(to.as_bytes());
        let mut parent =
            Parent { source: from, target: to, made: false, final_mode: None, id: (0, 0) };
        match sys::stat_at(sys::CWD, &path, true) {
            Ok(there) if sys::kind(&there) == libc::S_IFDIR => parent.id = sys::id(&there),
            Ok(_) => {
                options
                    .reporter
                    .fail(&format!("{} exists but is not a directory", quote(&parent.target)));
                return None;
            }
            Err(_) => {
                let keeps = options.preserve;
                let omitted = match (keeps.ownership, keeps.mode) {
                    (true, _) => stat.st_mode & 0o077,
                    (false, true) => stat.st_mode & 0o022,
                    (false, false) => 0,
                };
                let all = if options.no_preserve_mode { 0o777 } else { stat.st_mode & 0o1777 };
                let mode = all & !omitted;
                if let Err(e) = sys::mkdir_at(sys::CWD, &path, mode | 0o700) {
                    options
                        .reporter
                        .fail_with(&format!("cannot make directory {}", quote(&parent.target)), &e);
                    return None;
                }
                parent.made = true;
                let there = sys::stat_at(sys::CWD, &path, false);
                parent.id = there.as_ref().map_or((0, 0), sys::id);
                let made = there.map_or(mode, |stat| stat.st_mode);
                let wanted = made & 0o7777 & (mode | !0o700) | omitted & !options.umask;
                if wanted != made & 0o7777 {
                    parent.final_mode = Some(wanted);
                }
                if options.verbose {
                    options.reporter.print(&format!(
                        "{} -> {}",
                        String::from_utf8_lossy(parent.source.as_bytes()),
                        String::from_utf8_lossy(parent.target.as_bytes())
                    ));
                }
            }
        }
        parents.push(parent);
    }
    Some(parents)
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
        let e = std::io::Error::from_raw_os_error(libc::EEXIST);
        options.reporter.fail_with(&format!("cannot create directory {}", quote(&copy.target)), &e);
    }
    in_made
}

/// Sets the attributes of the directories above the target.
pub(crate) fn finish_parents(options: &Options, parents: &[Parent]) -> bool {
    let keeps = options.preserve;
    let mut good = true;
    let keeps_any = keeps.mode || keeps.ownership || keeps.timestamps || keeps.xattr;
    for parent in parents.iter().rev() {
        if !keeps_any && parent.final_mode.is_none() && !options.fsync {
            continue;
        }
        let open =
            |side, path: &OsStr| open_side(side, sys::CWD, &sys::c_string(path.as_bytes()), true);
        let source = sys::c_string(parent.source.as_bytes());
        let found = sys::stat_at(sys::CWD, &source, true)
            .and_then(|stat| Ok((stat, open(Side::Target, &parent.target)?)))
            .and_then(|(stat, target)| match sys::stat_of(target.as_fd())? {
                now if sys::id(&now) == parent.id => Ok((stat, target)),
                _ => Err(std::io::Error::from_raw_os_error(libc::ENOENT)),
            });
        let (stat, target) = match found {
            Ok(found) => found,
            Err(e) => {
                let target = quote(&parent.target);
                options.reporter.fail_with(&format!("failed to preserve times for {target}"), &e);
                good = false;
                continue;
            }
        };
        let opened = open(Side::Source, &parent.source);
        let opened = opened
            .ok()
            .filter(|fd| sys::stat_of(fd.as_fd()).is_ok_and(|now| sys::id(&now) == sys::id(&stat)));
        if keeps_any {
            let name = sys::c_string(parent.target.as_bytes());
            let item = Item::of_command_line(&source, &name);
            // New or not, its final mode is set below.
            good &= match opened {
                Some(opened) => {
                    let copied = Copied {
                        item: &item,
                        source: opened.as_fd(),
                        target: target.as_fd(),
                        stat: &stat,
                        made: false,
                        may_have_acl: true,
                    };
                    attributes::apply(options, &copied) == attributes::Applied::Good
                }
                None => attributes::apply_by_name(options, &item, &stat, false),
            };
        }
        if !keeps.mode
            && let Some(mode) = parent.final_mode
        {
            let _ = sys::chmod_fd(target.as_fd(), mode);
        }
        if options.fsync
            && let Err(e) = sys::sync_fd(target.as_fd())
        {
            options.reporter.fail_with(&format!("error syncing {}", quote(&parent.target)), &e);
            good = false;
        }
    }
    good
}
