//! Maps each source to its target: GNU's rules for the last name, `-t`, `-T` and `--parents`.

use crate::choices::Replace;
use crate::messages::{quote, reason};
use crate::options::Options;
use crate::request::Request;
use crate::sys;
use crate::tree::join;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
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

/// Returns whether no source or target depends on another one.
fn have_nothing_in_common(options: &Options, copies: &[Copy]) -> bool {
    let (mut targets, mut written) = (HashSet::new(), HashSet::new());
    let look =
        |path: &OsStr, follow| sys::stat_at(sys::CWD, &sys::c_string(path.as_bytes()), follow);
    let are_apart = copies.iter().all(|copy| {
        let existing = look(&copy.target, false).ok();
        written.extend(existing.iter().map(sys::id));
        targets.insert(&copy.target)
            && existing.is_none_or(|existing| {
                sys::kind(&existing) != libc::S_IFLNK && existing.st_nlink == 1
            })
    });
    // A dangling link may lead to a file that another source creates.
    are_apart
        && copies.iter().all(|copy| match look(&copy.source, true) {
            Ok(stat) if sys::kind(&stat) == libc::S_IFDIR => !options.recursive,
            Ok(stat) => !written.contains(&sys::id(&stat)),
            Err(_) => look(&copy.source, false).is_err(),
        })
}

/// Plans one source and its target.
fn single(options: &Options, names: Vec<OsString>) -> Result<Vec<Copy>, Usage> {
    if options.parents {
        return Err("with --parents, the destination must be a directory".into());
    }
    // As with GNU's, `--strip-trailing-slashes` affects only sources that go into a directory.
    Ok(vec![Copy { source: names[0].clone(), target: names[1].clone(), below: None }])
}

/// Plans sources that go into a directory.
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
pub(crate) fn without_slashes(name: &OsStr) -> OsString {
    let bytes = name.as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(bytes.len().min(1), |at| at + 1);
    OsStr::from_bytes(&bytes[..end]).to_owned()
}
