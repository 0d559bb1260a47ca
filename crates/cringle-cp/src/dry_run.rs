//! `--dry-run`: prints the lines of `-v`, what would happen to existing targets, and the failures
//! that can be predicted. Changes nothing and asks nothing.
//!
//! It uses the handles and the listings of a copy, so that memory and descriptors are bounded, and
//! a tree may be deeper than a path can be long.

use crate::compare;
use crate::decide::Decision;
use crate::descriptors::{self, Budget};
use crate::entry::refused_relative_link;
use crate::listing::{Entry, Listings, Waiting, next_entries};
use crate::messages::quote;
use crate::options::Options;
use crate::plan::Copy;
use crate::sys::{self, Stat};
use crate::target::refusal;
use crate::tree::{Dir, Item, OpenDirs, Opened, Root, Side};
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a directory that are read at once.
const LISTING_BYTES: usize = 32 << 10;

/// Prints what a copy would do.
pub(crate) fn run(options: &Options, copies: &[Copy]) {
    let budget = Budget::of_this_process(1, false);
    let open = Arc::new(OpenDirs::new(budget.directories));
    descriptors::may_close(Arc::downgrade(&open));
    let mut walk = Walk {
        options,
        open,
        listings: Listings::new(budget.listings),
        buffer: vec![0; LISTING_BYTES],
        levels: Vec::new(),
    };
    for copy in copies {
        let (source, target) =
            (sys::c_string(copy.source.as_bytes()), sys::c_string(copy.target.as_bytes()));
        let item = Item::of_command_line(&source, &target);
        walk.visit(&item, true);
        walk.finish();
    }
}

/// A directory whose entries are being visited.
struct Level {
    dir: Arc<Dir>,
    /// The target directory exists.
    onto: bool,
    entries: Vec<Entry>,
    rest: Option<Waiting>,
}

/// The walk through the sources, with the directories from the outermost to the innermost.
struct Walk<'a> {
    options: &'a Options,
    open: Arc<OpenDirs>,
    listings: Listings,
    buffer: Vec<u8>,
    levels: Vec<Level>,
}

impl Walk<'_> {
    /// Visits everything below the directories that have been entered.
    fn finish(&mut self) {
        while let Some(level) = self.levels.last_mut() {
            if let Some(entry) = level.entries.pop() {
                let (dir, onto) = (Arc::clone(&level.dir), level.onto);
                self.visit_in(&dir, onto, &entry);
            } else if let Some(rest) = level.rest.take() {
                self.list(&rest.resume());
            } else {
                level.dir.close();
                self.levels.pop();
            }
        }
    }

    /// Reads the next piece of the innermost directory. If too many listings are unfinished, reads
    /// all pieces: regular files are visited at once, and other names are kept.
    fn list(&mut self, handle: &Arc<OwnedFd>) {
        let Some(at) = self.levels.len().checked_sub(1) else { return };
        let (dir, onto) = (Arc::clone(&self.levels[at].dir), self.levels[at].onto);
        loop {
            let mut entries = Vec::new();
            let more = next_entries(handle, &mut self.buffer, LISTING_BYTES / 2, &mut entries)
                .unwrap_or_else(|e| {
                    let path = quote(dir.path(Side::Source));
                    self.options.reporter.fail_on("error reading", path, &e);
                    false
                });
            let rest = if more { self.listings.wait_with(handle) } else { None };
            if !more || rest.is_some() {
                self.levels[at].entries.extend(entries);
                self.levels[at].rest = rest;
                return;
            }
            for entry in entries {
                if entry.kind == libc::DT_REG {
                    self.visit_in(&dir, onto, &entry);
                } else {
                    self.levels[at].entries.push(entry);
                }
            }
        }
    }

    fn visit_in(&mut self, dir: &Arc<Dir>, onto: bool, entry: &Entry) {
        let fd = |side| {
            dir.fd(side, &self.open).inspect_err(|e| {
                self.options.reporter.fail_on("cannot access", quote(dir.path(side)), e);
            })
        };
        let (Ok(source), Ok(target)) =
            (fd(Side::Source), onto.then(|| fd(Side::Target)).transpose())
        else {
            return;
        };
        let item = Item {
            dir: Some(dir),
            source_dir: source.as_fd(),
            source: &entry.name,
            // No name is looked up in a directory that does not exist.
            target_dir: sys::or_cwd(&target),
            target: &entry.name,
        };
        self.visit(&item, onto);
    }

    /// `may_exist`: the directory that holds the target exists.
    fn visit(&mut self, item: &Item<'_>, may_exist: bool) {
        let options = self.options;
        let follow = options.follows(item.is_top());
        let source = || item.quoted(Side::Source);
        let Some(stat) = compare::stat_source(options, item) else { return };
        let is_dir = sys::kind(&stat) == libc::S_IFDIR;
        if is_dir && item.is_top() && self.copies_into_itself(item, &stat) {
            let (source, target) = (source(), item.quoted(Side::Target));
            return self
                .options
                .reporter
                .fail(&format!("cannot copy a directory, {source}, into itself, {target}"));
        }
        if is_dir && follow && item.dir.is_some_and(|dir| dir.is_within(sys::id(&stat))) {
            return self
                .options
                .reporter
                .fail(&format!("cannot copy cyclic symbolic link {}", source()));
        }
        let existing = || sys::stat_at(item.target_dir, item.target, false).ok();
        let existing = if may_exist { existing() } else { None };
        if !outcome(options, item, &stat, existing, may_exist) || !is_dir {
            return;
        }
        let elsewhere = item.dir.is_some_and(|dir| dir.root.device != stat.st_dev);
        if !(options.one_file_system && elsewhere) {
            let onto = existing.is_some_and(|existing| sys::kind(&existing) == libc::S_IFDIR);
            self.enter(item, follow, onto);
        }
    }

    /// Returns whether the target lies within the source. With `-x`, a target on another file
    /// system is not found there.
    fn copies_into_itself(&self, item: &Item<'_>, source: &Stat) -> bool {
        let is_elsewhere = || {
            let holder = sys::c_string(parent(item.target).as_os_str().as_bytes());
            let found = sys::stat_at(item.target_dir, item.target, true)
                .or_else(|_| sys::stat_at(item.target_dir, &holder, true));
            found.is_ok_and(|found| found.st_dev != source.st_dev)
        };
        target_is_within_source(item) && !(self.options.one_file_system && is_elsewhere())
    }

    fn enter(&mut self, item: &Item<'_>, follow: bool, onto: bool) {
        let reporter = &self.options.reporter;
        let source = item.open_dir(Side::Source, follow, reporter);
        let target = onto.then(|| item.open_dir(Side::Target, item.is_top(), reporter));
        let (Ok((source, stat)), Ok(target)) = (source, target.transpose()) else { return };
        let root = item.dir.map_or_else(
            || Arc::new(Root::new(self.options, item, &stat)),
            |dir| Arc::clone(&dir.root),
        );
        let opened = Opened {
            source,
            target_id: target.as_ref().map_or((0, 0), |(_, stat)| sys::id(stat)),
            target: target.map(|(open, _)| open),
            stat,
            made: false,
            resumed: false,
            final_mode: None,
            gives_default_acl: false,
            key: 0,
        };
        let names = (item.source.to_owned(), item.target.to_owned());
        let dir = Dir::new(item.dir.cloned(), root, names, opened, &self.open);
        let handle = dir.fd(Side::Source, &self.open);
        self.levels.push(Level { dir, onto, entries: Vec::new(), rest: None });
        if let Ok(handle) = handle {
            self.list(&handle);
        }
    }
}

/// Prints what would happen to the target; returns false if nothing would.
fn outcome(
    options: &Options,
    item: &Item<'_>,
    stat: &Stat,
    existing: Option<Stat>,
    may_exist: bool,
) -> bool {
    let (source, target) = (item.quoted(Side::Source), item.quoted(Side::Target));
    let is_dir = sys::kind(stat) == libc::S_IFDIR;
    if !is_readable(options, item, stat) {
        let e = io::Error::from_raw_os_error(libc::EACCES);
        let what = if is_dir { "access" } else { "open" };
        let end = if is_dir { "" } else { " for reading" };
        options.reporter.fail_with(&format!("cannot {what} {source}{end}"), &e);
        return false;
    }
    if !is_dir
        && options.symbolic_link
        && let Some(why) = refused_relative_link(item)
    {
        options.reporter.fail(&why);
        return false;
    }
    let Some(existing) = existing else {
        if may_exist && let Err(e) = may_create(options, item) {
            let what = if is_dir { "directory" } else { "regular file" };
            options.reporter.fail_on(&format!("cannot create {what}"), target, &e);
            return false;
        }
        options.reporter.print(&format!("{source} -> {target}"));
        return true;
    };
    let existing = compare::stat_target(options, item, stat).unwrap_or(existing);
    print_decision(options, item, stat, &existing)
}

/// Prints what would happen to an existing target, with "yes" to each question. Returns false if
/// the target would stay as it is.
fn print_decision(options: &Options, item: &Item<'_>, source: &Stat, existing: &Stat) -> bool {
    let mut asks = false;
    let yes = || {
        asks = true;
        true
    };
    let how = match compare::decide_target(options, item, source, existing, false, yes) {
        Decision::Refuse(why) => {
            options.reporter.fail(&refusal(why, item));
            return false;
        }
        Decision::AlreadySame | Decision::Declined | Decision::Ask => return false,
        Decision::Keep | Decision::KeepNewer => {
            options.reporter.print(&format!("skipped {}", item.quoted(Side::Target)));
            return false;
        }
        // Its entries go into the existing directory.
        Decision::Overwrite if sys::kind(source) == libc::S_IFDIR => return true,
        Decision::Overwrite if asks => "asked about, overwritten",
        Decision::Overwrite => "overwritten",
        Decision::BackUp => "backed up, replaced",
        Decision::RemoveFirst => "removed, replaced",
    };
    let (source, target) = (item.quoted(Side::Source), item.quoted(Side::Target));
    options.reporter.print(&format!("{source} -> {target} ({how})"));
    true
}

/// Returns whether the source can be read, or need not be: a file that is linked to is not read.
fn is_readable(options: &Options, item: &Item<'_>, stat: &Stat) -> bool {
    let opened = match sys::kind(stat) {
        libc::S_IFDIR => true,
        libc::S_IFREG => !options.hard_link && !options.symbolic_link,
        _ => false,
    };
    !opened || sys::accessible(item.source_dir, item.source, libc::R_OK)
}

fn parent(path: &CStr) -> &Path {
    match Path::new(OsStr::from_bytes(path.to_bytes())).parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Fails, with the reason, if the name cannot be created. With `--parents`, the directories above a
/// name of the command line need not exist.
fn may_create(options: &Options, item: &Item<'_>) -> io::Result<()> {
    let mut path = sys::c_string(parent(item.target).as_os_str().as_bytes());
    loop {
        match sys::access(item.target_dir, &path, libc::W_OK | libc::X_OK) {
            Err(e)
                if e.raw_os_error() == Some(libc::ENOENT)
                    && options.parents
                    && item.is_top()
                    && path.to_bytes() != b"." =>
            {
                path = sys::c_string(parent(&path).as_os_str().as_bytes());
            }
            result => return result,
        }
    }
}

/// Returns whether the target lies within the source.
fn target_is_within_source(item: &Item<'_>) -> bool {
    let source = Path::new(OsStr::from_bytes(item.source.to_bytes())).canonicalize();
    let target = Path::new(OsStr::from_bytes(item.target.to_bytes()));
    let target = target.canonicalize().or_else(|_| parent(item.target).canonicalize());
    matches!((source, target), (Ok(source), Ok(target)) if target.starts_with(&source))
}
