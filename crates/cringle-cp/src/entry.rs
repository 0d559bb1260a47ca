//! Copies one name of a tree or of the command line: prepares its target, then copies by file type.

use crate::attributes;
use crate::choices::{Follow, Replace};
use crate::compare::{self, entry};
use crate::hard_links::Made;
use crate::messages::quote;
use crate::new_link::NewLink;
use crate::regular::{Outcome, Target, open_source};
use crate::replace::directory_of;
use crate::summary::Counters;
use crate::sys::{self, Stat};
use crate::target::{Step, backup_path};
use crate::tree::{Item, Side};
use crate::workers::{Worker, lock, now};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

impl Worker<'_> {
    /// Copies one name. `kind` is the type that the directory gives (`DT_REG` and others). Returns
    /// false if it failed, which has been reported and counted.
    pub(crate) fn copy(&mut self, item: &Item<'_>, kind: u8) -> bool {
        self.releases = self.shared.file_locks.released();
        let mut has_earlier = false;
        if let Some(resume) = &self.shared.resume {
            (self.looked, has_earlier) = (now(), resume.has_earlier());
            self.recorded = None;
            (self.is_own_copy, self.is_own_file) = (false, false);
        }
        let options = &self.shared.options;
        let simple = kind == libc::DT_REG
            && !options.hard_link
            && !options.symbolic_link
            && !options.remove_first
            && !has_earlier;
        let good = match if simple { self.copy_likely_new(item) } else { None } {
            Some(ended) => ended != Outcome::Failed,
            None => self.copy_general(item),
        };
        if !good {
            self.reporter().fail_silently();
            Counters::add(&self.shared.counters.failures, 1);
        }
        good
    }

    /// Copies one name of any type, whether its target exists or not.
    pub(crate) fn copy_general(&mut self, item: &Item<'_>) -> bool {
        let options = &self.shared.options;
        let Some(stat) = compare::stat_source(options, item) else { return false };
        let is_dir = sys::kind(&stat) == libc::S_IFDIR;
        if item.is_top() && !is_dir && self.is_repeated(item, &stat) {
            return true;
        }
        if !self.remove_own_of_other_type(item, &stat) {
            return false;
        }
        if let Some(good) = self.skip_whole(item, &stat) {
            return good;
        }
        match self.prepare_target(item, &stat) {
            Step::Done(good) => good,
            Step::Go { new, backup, existing } => {
                self.backup = backup.as_deref().map(|name| sys::c_string(name.as_bytes()));
                self.made_top = true;
                let good = self.copy_kind(item, &stat, new, backup.as_deref(), existing);
                self.backup = None;
                if !good && let Some(backup) = &backup {
                    self.undo_backup(item, backup);
                }
                self.made_top &= good && item.is_top();
                // With `--fsync`, the target gets its name later.
                if self.made_top && !self.shared.options.fsync {
                    self.remember_target(item);
                }
                good
            }
        }
    }

    /// Reports whether a file was named before on the command line. It is copied once.
    fn is_repeated(&self, item: &Item<'_>, stat: &Stat) -> bool {
        let first =
            lock(&self.shared.sources).insert((entry(&item.path(Side::Source)), sys::id(stat)));
        let repeated = !first && self.shared.options.backup.is_none();
        if !repeated {
            return false;
        }
        let name = item.quoted(Side::Source);
        self.reporter().note(&format!("warning: source file {name} specified more than once"));
        true
    }

    /// Remembers the target: a later source of the command line must not replace it.
    pub(crate) fn remember_target(&self, item: &Item<'_>) {
        if let Ok(made) = sys::stat_at(item.target_dir, item.target, false) {
            lock(&self.shared.targets).insert((item.path(Side::Target), sys::id(&made)));
        }
    }

    pub(crate) fn print_copied(&self, item: &Item<'_>, backup: Option<&OsStr>) {
        let mut text = format!("{} -> {}", item.quoted(Side::Source), item.quoted(Side::Target));
        if let Some(backup) = backup {
            text.push_str(&format!(" (backup: {})", quote(backup_path(item, backup))));
        }
        self.reporter().print(&text);
    }

    /// Copies by file type; further names of a copied file become links to it.
    fn copy_kind(
        &mut self,
        item: &Item<'_>,
        stat: &Stat,
        new: bool,
        backup: Option<&OsStr>,
        existing: Option<Stat>,
    ) -> bool {
        let options = &self.shared.options;
        let kind = sys::kind(stat);
        if kind == libc::S_IFDIR {
            return self.enter(item, stat, new);
        }
        let as_regular = kind == libc::S_IFREG || options.as_regular && kind != libc::S_IFLNK;
        let regular = as_regular && !options.hard_link && !options.symbolic_link;
        if options.verbose {
            self.print_copied(item, backup);
        }
        if !self.keeps_links(item, stat) {
            return self.copy_content(item, stat, new, regular, existing);
        }
        let id = sys::id(stat);
        if let Some(made) = self.shared.links.begin(id) {
            // Another name of this file has been copied.
            self.made_top = false;
            let good = self.link_to(item, &made, existing.is_some());
            if good {
                // The new link has changed the status of the copy.
                self.record(item, made.recorded, false);
            }
            return good;
        }
        let good = self.copy_content(item, stat, new, regular, existing);
        let recorded = self.recorded;
        let made = Made { dir: item.dir.cloned(), name: item.target.to_owned(), recorded };
        self.shared.links.done(id, good.then_some(made));
        good
    }

    /// Returns whether further names of this file become links to its first copy. (Through symbolic
    /// links, even a file with one name can be found twice.)
    pub(crate) fn keeps_links(&self, item: &Item<'_>, stat: &Stat) -> bool {
        let options = &self.shared.options;
        options.preserve.links
            && !options.hard_link
            && !(options.symbolic_link && options.follows(item.is_top()))
            && (stat.st_nlink > 1
                || options.follow == Follow::Always
                || options.follow == Follow::CommandLine && item.is_top())
    }

    /// Remembers a target that was kept: other names of its source become links to it.
    pub(crate) fn remember_link(&self, item: &Item<'_>, source: &Stat) {
        let id = sys::id(source);
        if self.shared.options.preserve.links
            && source.st_nlink > 1
            && self.shared.links.begin(id).is_none()
        {
            let name = item.target.to_owned();
            let made = Made { dir: item.dir.cloned(), name, recorded: None };
            self.shared.links.done(id, Some(made));
        }
    }

    /// Copies the file, or links to it for `--link` and `--symbolic-link`.
    fn copy_content(
        &mut self,
        item: &Item<'_>,
        stat: &Stat,
        new: bool,
        regular: bool,
        existing: Option<Stat>,
    ) -> bool {
        let (options, kind) = (&self.shared.options, sys::kind(stat));
        if options.symbolic_link {
            return self.make_symbolic_link(item, stat, existing.is_some());
        }
        if options.hard_link {
            return self.make_hard_link(item, existing.is_some());
        }
        if regular {
            return (!new || self.announce_file(item)) && self.copy_file(item, stat, new);
        }
        if !self.announce(self.key_of(item), kind) {
            return false;
        }
        if kind == libc::S_IFLNK {
            self.copy_link(item, stat, existing.is_some())
        } else {
            self.copy_special(item, stat)
        }
    }

    /// Opens the source and copies its content.
    fn copy_file(&mut self, item: &Item<'_>, stat: &Stat, new: bool) -> bool {
        let follow = self.shared.options.follows(item.is_top());
        // Opening a FIFO does not wait; `copy_regular` does, before it opens the target. The open
        // of a device waits as its driver decides.
        let opened = if matches!(sys::kind(stat), libc::S_IFREG | libc::S_IFIFO) {
            open_source(item, follow)
        } else {
            let flags = libc::O_RDONLY | if follow { 0 } else { libc::O_NOFOLLOW };
            sys::open_at(item.source_dir, item.source, flags, 0)
        };
        let name = || item.quoted(Side::Source);
        let unopened = |e: &_| {
            self.reporter().fail_with(&format!("cannot open {} for reading", name()), e);
        };
        let Ok(source) = opened.inspect_err(unopened) else { return false };
        let unknown = |e: &_| self.reporter().fail_on("cannot fstat", name(), e);
        let Ok(now) = sys::stat_of(&source).inspect_err(unknown) else { return false };
        if sys::id(&now) != sys::id(stat) {
            let text = format!("skipping file {}, as it was replaced while being copied", name());
            self.reporter().fail(&text);
            return false;
        }
        let target = if new { Target::New } else { Target::Existing };
        // Only `LikelyNew` can return `Exists`.
        self.copy_regular(item, source, &now, target, None) == Outcome::Good
    }

    /// Links to the copy of another name of the source.
    fn link_to(&mut self, item: &Item<'_>, made: &Made, exists: bool) -> bool {
        // The first name may be a link that was written through.
        let follow = self.shared.options.follows(item.is_top());
        let from = match &made.dir {
            None => Ok(None),
            Some(dir) => dir.fd(Side::Target, &self.shared.open).map(Some),
        };
        let linked = from.and_then(|dir| {
            let fd = sys::or_cwd(&dir);
            let link = NewLink::Hard { to: (fd, &made.name), follow };
            self.make_link(item, link, (exists, true))
        });
        if let Ok(true) = linked
            && self.shared.options.verbose
        {
            self.reporter().print(&format!("removed {}", item.quoted(Side::Target)));
        }
        if let Err(e) = linked {
            let dir = made.dir.as_ref();
            let first = Item { dir, target: &made.name, ..*item };
            let (new, old) = (item.quoted(Side::Target), first.quoted(Side::Target));
            self.reporter().fail_with(&format!("cannot create hard link {new} to {old}"), &e);
            return false;
        }
        Counters::add(&self.shared.counters.others, 1);
        true
    }

    fn make_hard_link(&mut self, item: &Item<'_>, exists: bool) -> bool {
        let options = &self.shared.options;
        let follow = options.follows(item.is_top());
        if options.fsync && !self.sync_linked(item, follow) {
            return false;
        }
        let options = &self.shared.options;
        // A target that another process has created meanwhile is replaced, too.
        let replaces =
            options.force || options.replace == Replace::Ask || exists && options.remove_first;
        let link = NewLink::Hard { to: (item.source_dir, item.source), follow };
        if let Err(e) = self.make_link(item, link, (exists, replaces)) {
            let (new, old) = (item.quoted(Side::Target), item.quoted(Side::Source));
            self.reporter().fail_with(&format!("cannot create hard link {new} to {old}"), &e);
            return false;
        }
        Counters::add(&self.shared.counters.others, 1);
        true
    }

    fn make_symbolic_link(&self, item: &Item<'_>, stat: &Stat, exists: bool) -> bool {
        let (source, target) = (item.path(Side::Source), item.path(Side::Target));
        if let Some(why) = refused_relative_link(item) {
            self.reporter().fail(&why);
            return false;
        }
        let text = sys::c_string(source.as_bytes());
        let link = NewLink::Symbolic(&text);
        if let Err(e) = self.make_link(item, link, (exists, self.shared.options.force)) {
            let (new, old) = (quote(&target), quote(&source));
            self.reporter().fail_with(&format!("cannot create symbolic link {new} to {old}"), &e);
            return false;
        }
        Counters::add(&self.shared.counters.others, 1);
        // The link keeps its new owner and mode, as with GNU's.
        !self.shared.options.preserve.timestamps
            || sys::set_times_at(item.target_dir, item.target, stat)
                .inspect_err(|e| self.reporter().fail_on("preserving times for", quote(&target), e))
                .is_ok()
    }

    fn copy_link(&self, item: &Item<'_>, stat: &Stat, exists: bool) -> bool {
        let unread = |e: &_| {
            self.reporter().fail_on("cannot read symbolic link", item.quoted(Side::Source), e);
        };
        let text = sys::read_link_at(item.source_dir, item.source).inspect_err(unread);
        let Ok(text) = text else { return false };
        let link = NewLink::Symbolic(&text);
        if let Err(e) = self.make_link(item, link, (exists, self.shared.options.force)) {
            self.reporter().fail_on("cannot create symbolic link", item.quoted(Side::Target), &e);
            return false;
        }
        Counters::add(&self.shared.counters.others, 1);
        attributes::apply_by_name(&self.shared.options, item, stat, true)
    }

    fn copy_special(&self, item: &Item<'_>, stat: &Stat) -> bool {
        let options = &self.shared.options;
        let mode = stat.st_mode & if options.preserve.ownership { 0o7700 } else { 0o7777 };
        let kind = sys::kind(stat);
        let made = sys::mknod_at(item.target_dir, item.target, kind | mode, stat.st_rdev);
        if let Err(e) = made {
            let what = if kind == libc::S_IFIFO { "fifo" } else { "special file" };
            self.reporter().fail_on(
                &format!("cannot create {what}"),
                item.quoted(Side::Target),
                &e,
            );
            return false;
        }
        Counters::add(&self.shared.counters.others, 1);
        attributes::apply_by_name(options, item, stat, true)
    }
}

/// Returns the message for a link of `--symbolic-link` that would not lead to its source.
pub(crate) fn refused_relative_link(item: &Item<'_>) -> Option<String> {
    let target = item.path(Side::Target);
    let leads = item.path(Side::Source).as_bytes().starts_with(b"/") || is_here(&target);
    let text = "can make relative symbolic links only in current directory";
    (!leads).then(|| format!("{}: {text}", shown(&target)))
}

/// Returns whether the path names an entry of the current directory. If that cannot be determined,
/// returns true: making the link fails then.
fn is_here(path: &OsStr) -> bool {
    let id = |path: &[u8]| sys::stat_at(sys::CWD, &sys::c_string(path), true).map(|s| sys::id(&s));
    match (id(b"."), id(directory_of(path.as_bytes()))) {
        (Ok(here), Ok(parent)) => here == parent,
        _ => true,
    }
}

/// Quotes a path only if it needs quotes, as some of GNU's messages do.
fn shown(path: &OsStr) -> String {
    let plain = path
        .as_bytes()
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"_-./+,@%:~".contains(byte));
    if plain { path.to_string_lossy().into_owned() } else { quote(path) }
}
