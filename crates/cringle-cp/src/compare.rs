//! Compares source and target, for [`decide`](crate::decide).

use crate::decide::{Comparison, Decision, Kind, Names, Node, Rules, decide};
use crate::options::Options;
use crate::sys::{self, Stat};
use crate::tree::{Item, Side};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

impl Node {
    #[allow(clippy::unnecessary_cast, reason = "the count has 32 bits on other architectures")]
    pub(crate) fn of(stat: &Stat) -> Node {
        Node {
            kind: match sys::kind(stat) {
                libc::S_IFREG => Kind::Regular,
                libc::S_IFDIR => Kind::Directory,
                libc::S_IFLNK => Kind::Link,
                _ => Kind::Special,
            },
            id: sys::id(stat),
            links: stat.st_nlink as u64,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
        }
    }
}

/// Returns the granularity of the target's time stamps in nanoseconds, for `-u` with copied times;
/// 1 where the granularity makes no difference.
///
/// It is derived from the target's own times, which are multiples of it. No file system has a
/// granularity between 1 ns and 100 ns.
fn time_step(options: &Options, item: &Item<'_>, existing: &Stat) -> i64 {
    if !options.only_newer || !options.preserve.timestamps {
        return 1;
    }
    let times = [existing.st_atime_nsec, existing.st_mtime_nsec, existing.st_ctime_nsec];
    let times = times.map(|nanoseconds| nanoseconds as i64);
    let mut step = 1;
    while step < 1_000_000_000 && times.iter().all(|time| time % (step * 10) == 0) {
        step *= 10;
    }
    if step < 100 {
        return 1;
    }
    let is_coarse = step == 1_000_000_000;
    if is_coarse && sys::is_fat(item.target_dir, item.target) { 2 * step } else { step }
}

impl Rules<'_> {
    /// `top`: the name is on the command line.
    fn of(options: &Options, top: bool) -> Rules<'_> {
        Rules { options, follow: options.follows(top) }
    }
}

/// Decides what happens to an existing target, for the copy and for the dry run.
///
/// `was_made`: an earlier source of the same copy made the target. `ask` answers a question of
/// `-i`.
pub(crate) fn decide_target(
    options: &Options,
    item: &Item<'_>,
    source: &Stat,
    existing: &Stat,
    was_made: bool,
    ask: impl FnOnce() -> bool,
) -> Decision {
    let rules = Rules::of(options, item.is_top());
    let (source, target) = (Node::of(source), Node::of(existing));
    let mut comparison = Comparison {
        source,
        target,
        names: names(&rules, item, &source, &target),
        just_made: was_made,
        is_dots: matches!(last_part(item.source.to_bytes()), b"." | b".."),
        backup_is_source: source_is_backup(options, item, &source),
        time_step: time_step(options, item, existing),
        answer: None,
    };
    match decide(&rules, &comparison) {
        Decision::Ask => {
            comparison.answer = Some(ask());
            decide(&rules, &comparison)
        }
        decision => decision,
    }
}

/// Returns the status of the target: of the entry itself, or of the file that a link leads to if a
/// copy of this source would write through the link.
pub(crate) fn stat_target(
    options: &Options,
    item: &Item<'_>,
    source: &Stat,
) -> std::io::Result<Stat> {
    let rules = Rules::of(options, item.is_top());
    let through = rules.looks_through(Node::of(source).kind);
    sys::stat_at(item.target_dir, item.target, through)
}

/// Returns the status of the source. Reports a failure, and a directory without `-r`.
pub(crate) fn stat_source(options: &Options, item: &Item<'_>) -> Option<Stat> {
    let name = || item.quoted(Side::Source);
    match sys::stat_at(item.source_dir, item.source, options.follows(item.is_top())) {
        Ok(stat) if sys::kind(&stat) == libc::S_IFDIR && !options.recursive => {
            options.reporter.fail(&format!("-r not specified; omitting directory {}", name()));
            None
        }
        Ok(stat) => Some(stat),
        Err(e) => {
            options.reporter.fail_on("cannot stat", name(), &e);
            None
        }
    }
}

/// Returns the status of the two names themselves, if the decision depends on them.
fn names(rules: &Rules<'_>, item: &Item<'_>, source: &Node, target: &Node) -> Option<Names> {
    if !rules.wants_names(source, target) {
        return None;
    }
    let stat = |dir, name, follow| sys::stat_at(dir, name, follow).ok();
    let end = |dir, name| stat(dir, name, true).map(|stat| sys::id(&stat));
    Some(Names {
        source: Node::of(&stat(item.source_dir, item.source, false)?),
        target: Node::of(&stat(item.target_dir, item.target, false)?),
        source_end: end(item.source_dir, item.source),
        target_end: end(item.target_dir, item.target),
        same_entry: same_entry(item),
    })
}

/// Returns whether source and target are the same directory entry.
fn same_entry(item: &Item<'_>) -> bool {
    if item.is_top() {
        return entry(&item.path(Side::Source)) == entry(&item.path(Side::Target));
    }
    // A name below two open directories, whose paths may be longer than the kernel accepts.
    item.source == item.target
        && sys::same(sys::stat_of(item.source_dir), sys::stat_of(item.target_dir))
}

/// A directory entry, independent of its spelling: its name and the directory's identity.
pub(crate) type Entry = (Vec<u8>, Option<(u64, u64)>);

pub(crate) fn entry(path: &OsStr) -> Entry {
    let (above, name) = split(path.as_bytes());
    let parent = sys::c_string(if above.is_empty() { b"." } else { above });
    let parent = sys::stat_at(sys::CWD, &parent, true).ok().map(|stat| sys::id(&stat));
    (name.to_vec(), parent)
}

/// Splits a path before its last component, whose trailing slashes are in neither part.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    (&path[..start], &path[start..end])
}

/// Returns the last component of a path, without slashes.
pub(crate) fn last_part(path: &[u8]) -> &[u8] {
    split(path).1
}

/// Returns whether a simple backup of the target would replace the source, or the file to which it
/// leads. (A file with a second name keeps its content when the backup replaces the first.)
fn source_is_backup(options: &Options, item: &Item<'_>, source: &Node) -> bool {
    if options.backup.is_none() {
        return false;
    }
    let backup = sys::c_string(&[item.target.to_bytes(), options.suffix.as_bytes()].concat());
    if !sys::stat_at(item.target_dir, &backup, true).is_ok_and(|stat| sys::id(&stat) == source.id) {
        return false;
    }
    let name = [last_part(item.target.to_bytes()), options.suffix.as_bytes()].concat();
    let is_link = || {
        sys::stat_at(item.source_dir, item.source, false)
            .is_ok_and(|stat| Node::of(&stat).kind == Kind::Link)
    };
    last_part(item.source.to_bytes()) == name || source.kind != Kind::Link && is_link()
}
