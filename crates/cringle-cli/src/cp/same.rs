//! Whether a copy would be onto itself.

use super::options::{Follow, Options};
use super::sys::{self, Stat};
use super::tree::{Item, Side};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Go,
    /// It is as it should be already.
    Nothing,
    Refuse,
}

fn go_if(fine: bool) -> Verdict {
    if fine { Verdict::Go } else { Verdict::Refuse }
}

/// The rules are GNU's: what would lose the data is refused, what would only replace a link is not.
pub(super) fn same_file(
    options: &Options,
    item: &Item<'_>,
    stat: &Stat,
    existing: &Stat,
) -> Verdict {
    let same = sys::id(stat) == sys::id(existing);
    if same && options.hard_link {
        return Verdict::Nothing;
    }
    let is_link = |stat: &Stat| sys::kind(stat) == libc::S_IFLNK;
    let never = options.follow == Follow::Never;
    if never && is_link(stat) && is_link(existing) {
        if same_name(item) {
            return Verdict::Refuse;
        }
        let nothing = same && options.backup.is_none();
        return if nothing { Verdict::Nothing } else { Verdict::Go };
    }
    if !never && !same {
        return Verdict::Go;
    }
    let itself = |dir, name| sys::stat_at(dir, name, false);
    let (source, target) = if never {
        (*stat, *existing)
    } else {
        match (itself(item.source_dir, item.source), itself(item.target_dir, item.target)) {
            (Ok(source), Ok(target)) => (source, target),
            _ => return Verdict::Go,
        }
    };
    let same_itself = sys::id(&source) == sys::id(&target);
    if !never && options.remove_first && is_link(&source) && is_link(&target) {
        return Verdict::Go;
    }
    if options.backup.is_some() {
        if same_itself {
            return go_if(!same_name(item));
        }
        return go_if(never || !is_link(&source) || is_link(&target));
    }
    let gone_first = is_link(&target) || same_itself && target.st_nlink > 1 && !same_name(item);
    if options.remove_first && gone_first {
        return Verdict::Go;
    }
    if !is_link(&source) && !is_link(&target) && !same_itself {
        return Verdict::Go;
    }
    if options.symbolic_link && is_link(&target) {
        return Verdict::Go;
    }
    if never {
        let end = |link: bool, stat: &Stat, dir, name| {
            if link { sys::stat_at(dir, name, true).ok() } else { Some(*stat) }
        };
        let from = end(is_link(&source), &source, item.source_dir, item.source);
        let to = end(is_link(&target), &target, item.target_dir, item.target);
        match (from, to) {
            (Some(from), Some(to)) if sys::id(&from) == sys::id(&to) => {
                if options.hard_link {
                    return if is_link(&target) { Verdict::Go } else { Verdict::Nothing };
                }
            }
            _ => return Verdict::Go,
        }
    }
    Verdict::Refuse
}

/// An entry of a directory, however it is spelled: its name, and which directory that is.
pub(super) type Entry = (Vec<u8>, Option<(u64, u64)>);

pub(super) fn entry(path: &OsStr) -> Entry {
    let bytes = path.as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    let start = bytes[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let parent: CString = sys::c_string(if start == 0 { b"." } else { &bytes[..start] });
    let parent = sys::stat_at(sys::CWD, &parent, true).ok().map(|stat| sys::id(&stat));
    (bytes[start..end].to_vec(), parent)
}

fn same_name(item: &Item<'_>) -> bool {
    entry(&item.path(Side::Source)) == entry(&item.path(Side::Target))
}
