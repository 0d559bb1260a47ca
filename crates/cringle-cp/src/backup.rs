//! Renames a file that is about to be replaced: `--backup`.

use crate::listing::next_entries;
use crate::sys;
use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Simple,
    /// Numbered if the file has numbered backups, else simple.
    Existing,
    Numbered,
}

/// Parses the argument of `--backup`: the inner `None` is "no backups", the outer one an unknown
/// word.
pub(crate) fn kind_of(word: &str) -> Option<Option<Kind>> {
    match word {
        "none" | "off" => Some(None),
        "simple" | "never" => Some(Some(Kind::Simple)),
        "existing" | "nil" => Some(Some(Kind::Existing)),
        "numbered" | "t" => Some(Some(Kind::Numbered)),
        _ => None,
    }
}

/// Returns the suffix of simple backups: the option's, else the environment's, else `~`. A suffix
/// with a slash is ignored, because it would name a file in another directory.
pub(crate) fn suffix(option: Option<OsString>) -> OsString {
    let given = option.or_else(|| std::env::var_os("SIMPLE_BACKUP_SUFFIX"));
    match given {
        Some(text) if !text.is_empty() && !text.as_bytes().contains(&b'/') => text,
        _ => "~".into(),
    }
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => path.split_at(slash + 1),
        None => (&[], path),
    }
}

/// Returns the highest number among the backups of this file, or 0.
fn highest(dir: BorrowedFd<'_>, parent: &[u8], base: &[u8]) -> io::Result<u64> {
    let parent = if parent.is_empty() { c".".to_owned() } else { sys::c_string(parent) };
    let open = match sys::open_at(dir, &parent, libc::O_RDONLY | libc::O_DIRECTORY, 0) {
        // The directory cannot be listed: `make` tries the numbers one by one.
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => return Ok(0),
        answer => answer?,
    };
    let (mut entries, mut buffer) = (Vec::new(), vec![0; 32 << 10]);
    let (mut most, mut more) = (0, true);
    while more {
        more = next_entries(&open, &mut buffer, 1 << 15, &mut entries)?;
        for entry in entries.drain(..) {
            let number = entry
                .name
                .to_bytes()
                .strip_prefix(base)
                .and_then(|rest| rest.strip_prefix(b".~"))
                .and_then(|rest| rest.strip_suffix(b"~"))
                .filter(|digits| !digits.starts_with(b"0"))
                .and_then(|digits| std::str::from_utf8(digits).ok())
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|digits| digits.parse().ok());
            most = most.max(number.unwrap_or(0));
        }
    }
    Ok(most)
}

/// Returns the name that the backup gets, in the same directory.
pub(crate) fn name_for(
    kind: Kind,
    suffix: &OsString,
    place: (BorrowedFd<'_>, &CStr),
) -> io::Result<CString> {
    name_above(kind, suffix, place, 0).map(|(name, _)| name)
}

/// Returns the name, and whether it has a number. `taken` is the number of names that were found to
/// exist.
fn name_above(
    kind: Kind,
    suffix: &OsString,
    (dir, name): (BorrowedFd<'_>, &CStr),
    taken: u64,
) -> io::Result<(CString, bool)> {
    let path = name.to_bytes();
    let (parent, base) = split(path);
    let simple = || with_suffix(path, suffix.as_bytes());
    if kind == Kind::Simple {
        return Ok((simple(), false));
    }
    let highest = highest(dir, parent, base)?;
    if kind == Kind::Existing && highest == 0 {
        return Ok((simple(), false));
    }
    Ok((with_suffix(path, format!(".~{}~", highest + 1 + taken).as_bytes()), true))
}

/// Appends the suffix. A name that would become too long is cut and gets `~` instead, as with
/// GNU's.
fn with_suffix(path: &[u8], suffix: &[u8]) -> CString {
    const LONGEST: usize = 254;
    let (_, base) = split(path);
    if base.len() + suffix.len() <= LONGEST {
        return sys::c_string(&[path, suffix].concat());
    }
    let cut = base.len().saturating_sub(LONGEST - 1);
    sys::c_string(&[&path[..path.len() - cut], b"~"].concat())
}

/// Renames the file to its backup's name and returns that name; `None` if the file no longer
/// exists.
pub(crate) fn make(
    kind: Kind,
    suffix: &OsString,
    (dir, name): (BorrowedFd<'_>, &CStr),
) -> io::Result<Option<CString>> {
    let mut taken = 0;
    let mut tried = None;
    loop {
        // A numbered backup replaces no file: if another process took the number, the next one is
        // tried. A name that had to be cut has no number, and is tried once.
        let (backup, numbered) = name_above(kind, suffix, (dir, name), taken)?;
        let (from, to) = ((dir, name), (dir, &*backup));
        let renamed = if numbered { sys::rename_new(from, to) } else { sys::rename_at(from, to) };
        match renamed {
            Ok(()) => return Ok(Some(backup)),
            Err(e)
                if e.raw_os_error() == Some(libc::EEXIST)
                    && numbered
                    && tried.as_ref() != Some(&backup) =>
            {
                taken += 1;
                tried = Some(backup);
            }
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            Err(e) => return Err(e),
        }
    }
}
