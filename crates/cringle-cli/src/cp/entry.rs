//! One name, whatever it is: what is there already and what becomes of it, then the copy of its kind.

use super::attributes;
use super::backup;
use super::engine::{Counters, Task, Worker};
use super::links::Made;
use super::messages::{
    complain, complain_of, fail_quietly, mode_letters, note, program, quote, say,
};
use super::options::{Follow, Replace};
use super::regular::{Ended, Target, open_source};
use super::same::{Verdict, entry, same_file};
use super::sys::{self, Stat};
use super::tree::{Dir, Item, Opened, Root, Side, open_dir};
use std::ffi::{CStr, OsStr};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock, PoisonError};

/// What is to become of the target that is there.
enum Step {
    Go {
        new: bool,
        backup: Option<std::ffi::OsString>,
        existing: Option<Stat>,
    },
    /// Nothing is to be done; whether that is as it should be.
    Done(bool),
}

impl Worker<'_> {
    /// `kind` is the directory's word for what it is.
    pub(super) fn copy(&mut self, item: &Item<'_>, kind: u8) {
        let options = &self.shared.options;
        let simple = kind == libc::DT_REG
            && !options.hard_link
            && !options.symbolic_link
            && !options.remove_first;
        let good = match if simple { self.copy_likely_new(item) } else { None } {
            Some(ended) => ended != Ended::Failed,
            None => self.copy_general(item),
        };
        if !good {
            fail_quietly();
            Counters::add(&self.shared.counters.failures, 1);
        }
    }

    /// With all the questions asked.
    pub(super) fn copy_general(&mut self, item: &Item<'_>) -> bool {
        let options = &self.shared.options;
        let follow = options.follows(item.is_top());
        let stat = match sys::stat_at(item.source_dir, item.source, follow) {
            Ok(stat) => stat,
            Err(e) => {
                complain_of(&format!("cannot stat {}", item.quoted(Side::Source)), &e);
                return false;
            }
        };
        let is_dir = sys::kind(&stat) == libc::S_IFDIR;
        if is_dir && !options.recursive {
            complain(&format!(
                "-r not specified; omitting directory {}",
                item.quoted(Side::Source)
            ));
            return false;
        }
        if item.is_top() && !is_dir && self.is_repeated(item, &stat) {
            return true;
        }
        match self.look_at_target(item, &stat) {
            Step::Done(good) => good,
            Step::Go { new, backup, existing } => {
                let good = self.copy_kind(item, &stat, new, backup.as_deref(), existing);
                if !good && let Some(backup) = &backup {
                    self.undo_backup(item, backup);
                }
                if good && item.is_top() {
                    self.remember_target(item);
                }
                good
            }
        }
    }

    /// A file that is named twice is copied once.
    fn is_repeated(&self, item: &Item<'_>, stat: &Stat) -> bool {
        let mut seen = self.shared.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let first = seen.insert((entry(&item.path(Side::Source)), sys::id(stat)));
        let repeated = !first && self.shared.options.backup.is_none();
        if !repeated {
            return false;
        }
        let name = item.quoted(Side::Source);
        note(&format!("warning: source file {name} specified more than once"));
        true
    }

    fn remember_target(&self, item: &Item<'_>) {
        if let Ok(made) = sys::stat_at(item.target_dir, item.target, false) {
            let mut targets = self.shared.targets.lock().unwrap_or_else(PoisonError::into_inner);
            targets.insert((item.path(Side::Target), sys::id(&made)));
        }
    }

    fn was_just_made(&self, item: &Item<'_>, stat: &Stat) -> bool {
        let targets = self.shared.targets.lock().unwrap_or_else(PoisonError::into_inner);
        !targets.is_empty() && targets.contains(&(item.path(Side::Target), sys::id(stat)))
    }

    fn look_at_target(&mut self, item: &Item<'_>, stat: &Stat) -> Step {
        let options = &self.shared.options;
        let kind = sys::kind(stat);
        let is_dir = kind == libc::S_IFDIR;
        // Only a regular file is written through a link, and only where the target is not removed first.
        let through = (kind == libc::S_IFREG
            || options.as_regular && kind != libc::S_IFLNK && !is_dir)
            && !options.symbolic_link
            && !options.hard_link
            && options.backup.is_none()
            && !options.remove_first;
        let existing = match sys::stat_at(item.target_dir, item.target, through) {
            Ok(existing) => Some(existing),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => None,
            Err(e) if e.raw_os_error() == Some(libc::ELOOP) && options.force => {
                sys::stat_at(item.target_dir, item.target, false).ok()
            }
            // A name that ends in a slash, of a file: the opening will say what is wrong.
            Err(e)
                if e.raw_os_error() == Some(libc::ENOTDIR)
                    && item.target.to_bytes().ends_with(b"/") =>
            {
                complain_of(&format!("cannot stat {}", item.quoted(Side::Target)), &e);
                return Step::Done(false);
            }
            Err(e) => {
                complain_of(&format!("cannot stat {}", item.quoted(Side::Target)), &e);
                return Step::Done(false);
            }
        };
        let Some(existing) = existing else {
            return self
                .not_through_new_link(item, Step::Go { new: true, backup: None, existing: None });
        };
        let step = self.decide(item, stat, existing);
        self.not_through_new_link(item, step)
    }

    /// A link that this very command has made is not written through.
    fn not_through_new_link(&self, item: &Item<'_>, step: Step) -> Step {
        if item.is_top()
            && matches!(step, Step::Go { .. })
            && self.shared.options.backup.is_none()
            && let Ok(there) = sys::stat_at(item.target_dir, item.target, false)
            && sys::kind(&there) == libc::S_IFLNK
            && self.was_just_made(item, &there)
        {
            let (source, target) = (item.quoted(Side::Source), item.quoted(Side::Target));
            complain(&format!("will not copy {source} through just-created symlink {target}"));
            return Step::Done(false);
        }
        step
    }

    fn decide(&mut self, item: &Item<'_>, stat: &Stat, existing: Stat) -> Step {
        let options = &self.shared.options;
        let is_dir = sys::kind(stat) == libc::S_IFDIR;
        let onto_dir = sys::kind(&existing) == libc::S_IFDIR;
        let (source, target) = (|| item.quoted(Side::Source), || item.quoted(Side::Target));
        // What stays anyway may be the source.
        let stays = matches!(options.replace, Replace::Skip | Replace::Refuse);
        let verdict = if stays { Verdict::Go } else { same_file(options, item, stat, &existing) };
        if verdict == Verdict::Refuse {
            complain(&format!("{} and {} are the same file", source(), target()));
            return Step::Done(false);
        }
        if options.only_newer && !is_dir && !is_newer(stat, &existing) {
            self.debug_skipped(item);
            self.remember_link(item, stat);
            return Step::Done(true);
        }
        if !is_dir {
            match options.replace {
                Replace::Always => {}
                Replace::Skip => {
                    self.debug_skipped(item);
                    return Step::Done(true);
                }
                Replace::Refuse => {
                    complain(&format!("not replacing {}", target()));
                    return Step::Done(false);
                }
                Replace::Ask if self.ask(item, &existing) => {}
                Replace::Ask => return Step::Done(true),
            }
        }
        if verdict == Verdict::Nothing {
            return Step::Done(true);
        }
        if is_dir && !onto_dir {
            complain(&format!(
                "cannot overwrite non-directory {} with directory {}",
                target(),
                source()
            ));
            return Step::Done(false);
        }
        if !is_dir && onto_dir {
            complain(&format!("cannot overwrite directory {} with non-directory", target()));
            return Step::Done(false);
        }
        if !is_dir
            && options.backup != Some(backup::Kind::Numbered)
            && self.was_just_made(item, &existing)
        {
            complain(&format!("will not overwrite just-created {} with {}", target(), source()));
            return Step::Done(false);
        }
        if let Some(kind) = options.backup
            && !onto_dir
        {
            return self.back_up(item, stat, kind);
        }
        let unlink = !onto_dir
            && (options.remove_first
                || !options.attributes_only
                    && (options.preserve.links && existing.st_nlink > 1
                        || options.follow == Follow::Never && sys::kind(stat) != libc::S_IFREG));
        if !unlink {
            return Step::Go { new: false, backup: None, existing: Some(existing) };
        }
        match sys::unlink_at(item.target_dir, item.target) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
            Err(e) => {
                complain_of(&format!("cannot remove {}", target()), &e);
                return Step::Done(false);
            }
        }
        if options.verbose {
            say(&format!("removed {}", target()));
        }
        Step::Go { new: true, backup: None, existing: None }
    }

    fn back_up(&self, item: &Item<'_>, stat: &Stat, kind: backup::Kind) -> Step {
        let options = &self.shared.options;
        let place = (item.target_dir, item.target);
        let (source, target) = (|| item.quoted(Side::Source), || item.quoted(Side::Target));
        let made = backup::name_for(kind, &options.suffix, place).and_then(|name| {
            let there = sys::stat_at(item.target_dir, &name, true);
            if kind != backup::Kind::Numbered && there.is_ok_and(|s| sys::id(&s) == sys::id(stat)) {
                complain(&format!(
                    "backing up {} might destroy source;  {} not copied",
                    target(),
                    source()
                ));
                return Ok(Err(()));
            }
            backup::make(kind, &options.suffix, place).map(Ok)
        });
        match made {
            Ok(Err(())) => Step::Done(false),
            Ok(Ok(name)) => {
                let backup = name.map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
                Step::Go { new: true, backup, existing: None }
            }
            Err(e) => {
                complain_of(&format!("cannot backup {}", target()), &e);
                Step::Done(false)
            }
        }
    }

    fn undo_backup(&self, item: &Item<'_>, backup: &OsStr) {
        let backup = sys::c_string(backup.as_bytes());
        let dir = item.target_dir;
        if let Err(e) = sys::rename_at((dir, &backup), (dir, item.target), false) {
            complain_of(&format!("cannot un-backup {}", item.quoted(Side::Target)), &e);
        } else if self.shared.options.verbose {
            let name = quote(OsStr::from_bytes(backup.to_bytes()));
            say(&format!("{name} -> {} (unbackup)", item.quoted(Side::Target)));
        }
    }

    fn debug_skipped(&self, item: &Item<'_>) {
        if self.shared.options.debug {
            say(&format!("skipped {}", item.quoted(Side::Target)));
        }
    }

    fn ask(&self, item: &Item<'_>, existing: &Stat) -> bool {
        let options = &self.shared.options;
        let target = item.quoted(Side::Target);
        let is_link = sys::kind(existing) == libc::S_IFLNK;
        let text = if is_link || sys::writable_at(item.target_dir, item.target) {
            format!("{}: overwrite {target}? ", program())
        } else {
            let mode = existing.st_mode & 0o7777;
            let letters = mode_letters(mode);
            if options.force || options.remove_first {
                format!("{}: replace {target}, overriding mode {mode:04o} ({letters})? ", program())
            } else {
                format!(
                    "{}: unwritable {target} (mode {mode:04o}, {letters}); try anyway? ",
                    program()
                )
            }
        };
        let _ = io::stderr().write_all(text.as_bytes());
        let mut answer = String::new();
        let _ = io::stdin().read_line(&mut answer);
        answer.starts_with(['y', 'Y'])
    }

    pub(super) fn say_copied(&self, item: &Item<'_>, backup: Option<&OsStr>) {
        let mut text = format!("{} -> {}", item.quoted(Side::Source), item.quoted(Side::Target));
        if let Some(backup) = backup {
            let path = item.path(Side::Target);
            let dir = path.as_bytes().iter().rposition(|&byte| byte == b'/');
            let own = backup.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            let mut full = path.as_bytes()[..dir.map_or(0, |slash| slash + 1)].to_vec();
            full.extend_from_slice(own);
            text.push_str(&format!(" (backup: {})", quote(OsStr::from_bytes(&full))));
        }
        say(&text);
    }

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
            self.say_copied(item, backup);
        }
        let keeps_link = options.preserve.links
            && !options.symbolic_link
            && !options.hard_link
            && (stat.st_nlink > 1
                || options.follow == Follow::Always
                || options.follow == Follow::CommandLine && item.is_top());
        if !keeps_link {
            return self.copy_content(item, stat, new, regular, existing);
        }
        let id = sys::id(stat);
        if let Some(made) = self.shared.links.begin(id) {
            return self.link_to(item, &made);
        }
        let good = self.copy_content(item, stat, new, regular, existing);
        let made = Made { dir: item.dir.cloned(), name: item.target.to_owned() };
        self.shared.links.done(id, good.then_some(made));
        good
    }

    /// A target that stays: others of the same file are to be links to it.
    fn remember_link(&self, item: &Item<'_>, stat: &Stat) {
        if self.shared.options.preserve.links
            && stat.st_nlink > 1
            && self.shared.links.begin(sys::id(stat)).is_none()
        {
            let made = Made { dir: item.dir.cloned(), name: item.target.to_owned() };
            self.shared.links.done(sys::id(stat), Some(made));
        }
    }

    fn copy_content(
        &mut self,
        item: &Item<'_>,
        stat: &Stat,
        new: bool,
        regular: bool,
        existing: Option<Stat>,
    ) -> bool {
        let options = &self.shared.options;
        if options.symbolic_link {
            return self.make_symbolic_link(item);
        }
        if options.hard_link {
            return self.make_hard_link(item, existing.is_some());
        }
        if regular {
            return self.copy_file(item, stat, new);
        }
        if sys::kind(stat) == libc::S_IFLNK {
            self.copy_link(item, stat)
        } else {
            self.copy_special(item, stat)
        }
    }

    fn copy_file(&mut self, item: &Item<'_>, stat: &Stat, new: bool) -> bool {
        let follow = self.shared.options.follows(item.is_top());
        let wait = sys::kind(stat) != libc::S_IFREG;
        let opened = if wait {
            // `--copy-contents` of a fifo waits for its writer.
            let flags = libc::O_RDONLY | if follow { 0 } else { libc::O_NOFOLLOW };
            sys::open_at(item.source_dir, item.source, flags, 0)
        } else {
            open_source(item, follow)
        };
        let source = match opened {
            Ok(source) => source,
            Err(e) => {
                complain_of(&format!("cannot open {} for reading", item.quoted(Side::Source)), &e);
                return false;
            }
        };
        let now = match sys::stat_of(source.as_raw_fd()) {
            Ok(now) => now,
            Err(e) => {
                complain_of(&format!("cannot fstat {}", item.quoted(Side::Source)), &e);
                return false;
            }
        };
        if sys::id(&now) != sys::id(stat) {
            let name = item.quoted(Side::Source);
            complain(&format!("skipping file {name}, as it was replaced while being copied"));
            return false;
        }
        let target = if new { Target::New } else { Target::Existing };
        // (`Exists` is the answer to `LikelyNew` alone.)
        self.copy_regular(item, source, &now, target, None) == Ended::Good
    }

    fn link_to(&mut self, item: &Item<'_>, made: &Made) -> bool {
        let from = match &made.dir {
            None => Ok(None),
            Some(dir) => dir.fd(Side::Target, &self.shared.open).map(Some),
        };
        let linked = from.and_then(|dir| {
            let fd = dir.as_ref().map_or(sys::CWD, |dir| dir.as_raw_fd());
            self.replacing(item, |name| {
                sys::link_at((fd, &made.name), (item.target_dir, name), false)
            })
        });
        if let Err(e) = linked {
            let dir = made.dir.as_ref();
            let first = Item { dir, target: &made.name, ..*item };
            let (new, old) = (item.quoted(Side::Target), first.quoted(Side::Target));
            complain_of(&format!("cannot create hard link {new} to {old}"), &e);
            return false;
        }
        Counters::add(&self.shared.counters.others, 1);
        true
    }

    fn make_hard_link(&self, item: &Item<'_>, exists: bool) -> bool {
        let options = &self.shared.options;
        let follow = options.follows(item.is_top());
        let from = (item.source_dir, item.source);
        let linked = if exists
            && (options.force || options.remove_first || options.replace == Replace::Ask)
        {
            self.replacing(item, |name| sys::link_at(from, (item.target_dir, name), follow))
        } else {
            sys::link_at(from, (item.target_dir, item.target), follow)
        };
        if let Err(e) = linked {
            let (new, old) = (item.quoted(Side::Target), item.quoted(Side::Source));
            complain_of(&format!("cannot create hard link {new} to {old}"), &e);
            return false;
        }
        Counters::add(&self.shared.counters.others, 1);
        true
    }

    fn make_symbolic_link(&self, item: &Item<'_>) -> bool {
        let (source, target) = (item.path(Side::Source), item.path(Side::Target));
        if !source.as_bytes().starts_with(b"/") && !is_here(&target) {
            complain(&format!(
                "{}: can make relative symbolic links only in current directory",
                shown(&target)
            ));
            return false;
        }
        let text = sys::c_string(source.as_bytes());
        let make = |name: &CStr| sys::symlink_at(&text, item.target_dir, name);
        let made =
            if self.shared.options.force { self.replacing(item, make) } else { make(item.target) };
        if let Err(e) = made {
            complain_of(
                &format!("cannot create symbolic link {} to {}", quote(&target), quote(&source)),
                &e,
            );
            return false;
        }
        Counters::add(&self.shared.counters.others, 1);
        true
    }

    /// Makes a link under a name that may exist: then under a temporary name, which is renamed onto it.
    /// `make` must fail on a name that exists.
    fn replacing(&self, item: &Item<'_>, make: impl Fn(&CStr) -> io::Result<()>) -> io::Result<()> {
        match make(item.target) {
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => {
                let ((), temporary) = self.shared.temporaries.make(item.target, make)?;
                let to = (item.target_dir, item.target);
                let renamed = sys::rename_at((item.target_dir, &temporary), to, false);
                // Renaming a link onto another link to the same file does nothing: both names stay.
                let _ = sys::unlink_at(item.target_dir, &temporary);
                renamed
            }
            answer => answer,
        }
    }

    fn copy_link(&self, item: &Item<'_>, stat: &Stat) -> bool {
        let text = match sys::read_link_at(item.source_dir, item.source) {
            Ok(text) => text,
            Err(e) => {
                let name = item.quoted(Side::Source);
                complain_of(&format!("cannot read symbolic link {name}"), &e);
                return false;
            }
        };
        if let Err(e) = sys::symlink_at(&text, item.target_dir, item.target) {
            let target = item.quoted(Side::Target);
            complain_of(&format!("cannot create symbolic link {target}"), &e);
            return false;
        }
        Counters::add(&self.shared.counters.others, 1);
        attributes::apply_by_name(&self.shared.options, item, stat)
    }

    fn copy_special(&self, item: &Item<'_>, stat: &Stat) -> bool {
        let options = &self.shared.options;
        let mode = stat.st_mode & 0o777 & if options.preserve.ownership { 0o700 } else { 0o777 };
        let kind = sys::kind(stat);
        let made = sys::mknod_at(item.target_dir, item.target, kind | mode, stat.st_rdev);
        if let Err(e) = made {
            let what = if kind == libc::S_IFIFO { "fifo" } else { "special file" };
            complain_of(&format!("cannot create {what} {}", item.quoted(Side::Target)), &e);
            return false;
        }
        Counters::add(&self.shared.counters.others, 1);
        attributes::apply_by_name(options, item, stat)
    }

    /// Makes the directory, if it is not there, and has its entries copied.
    fn enter(&mut self, item: &Item<'_>, stat: &Stat, new: bool) -> bool {
        let options = &self.shared.options;
        let root = item.dir.map(|dir| Arc::clone(&dir.root));
        let into_itself = |root: &Root| {
            let (source, target) = (quote(&root.source), quote(&root.target));
            complain(&format!("cannot copy a directory, {source}, into itself, {target}"));
        };
        if let Some(root) = &root
            && root.first_made.get() == Some(&sys::id(stat))
        {
            into_itself(root);
            return false;
        }
        if let Some(good) = self.went_elsewhere(item, stat) {
            return good;
        }
        let follow = options.follows(item.is_top());
        if let Some(dir) = item.dir
            && follow
            && dir.is_within(sys::id(stat))
        {
            complain(&format!("cannot copy cyclic symbolic link {}", item.quoted(Side::Source)));
            return false;
        }
        let root = root.unwrap_or_else(|| {
            Arc::new(Root {
                source: item.path(Side::Source),
                target: item.path(Side::Target),
                first_made: OnceLock::new(),
                device: stat.st_dev,
                follow: options.follow == Follow::Always,
            })
        });
        if new && !self.make_dir(item, stat) {
            return false;
        }
        let Some(opened) = self.open_both(item, stat, new, follow) else { return false };
        // The target itself counts though it was there before: `cp -r . sub` would never end.
        if new || item.is_top() {
            let _ = root.first_made.set(opened.target_id);
        }
        if new && options.verbose {
            self.say_copied(item, None);
        }
        Counters::add(&self.shared.counters.directories, 1);
        if let Some(parent) = item.dir {
            parent.pending.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        } else {
            self.shared.root_begins();
        }
        let names = (item.source.to_owned(), item.target.to_owned());
        let elsewhere = options.one_file_system && opened.stat.st_dev != root.device;
        let dir = Dir::new(item.dir.cloned(), root, names, opened, &self.shared.open);
        if elsewhere {
            self.part_done(dir);
        } else {
            self.push_counted(Task::List { dir, position: 0 });
        }
        true
    }

    /// A directory that the command line names and that is met again: GNU's takes the second for a hard
    /// link, and makes none. `None`: it is the first time, or links are followed.
    fn went_elsewhere(&self, item: &Item<'_>, stat: &Stat) -> Option<bool> {
        let directories = &self.shared.directories;
        let mut directories = directories.lock().unwrap_or_else(PoisonError::into_inner);
        let target = item.path(Side::Target);
        let Some(earlier) = directories.get(&sys::id(stat)) else {
            if item.is_top() {
                directories.insert(sys::id(stat), target);
            }
            return None;
        };
        if *earlier == target {
            let name = item.quoted(Side::Source);
            note(&format!("warning: source directory {name} specified more than once"));
            return Some(true);
        }
        if self.shared.options.follows(item.is_top()) {
            return None;
        }
        let (new, old) = (item.quoted(Side::Target), quote(earlier));
        complain(&format!("will not create hard link {new} to directory {old}"));
        Some(false)
    }

    fn make_dir(&self, item: &Item<'_>, stat: &Stat) -> bool {
        let options = &self.shared.options;
        let keeps = options.preserve;
        let mode = if options.no_preserve_mode {
            0o777 | stat.st_mode & 0o1000
        } else if keeps.mode || keeps.ownership {
            0o700
        } else {
            // The umask does not count where a default ACL does: without these bits, either way.
            stat.st_mode & 0o1777 & !(options.umask & 0o022)
        };
        if let Err(e) = sys::mkdir_at(item.target_dir, item.target, mode) {
            complain_of(&format!("cannot create directory {}", item.quoted(Side::Target)), &e);
            return false;
        }
        true
    }

    fn open_both(&self, item: &Item<'_>, stat: &Stat, new: bool, follow: bool) -> Option<Opened> {
        let options = &self.shared.options;
        // What we have made may lack what we need to fill it (mode 0555, a hard umask).
        let keeps = options.preserve;
        let mut final_mode = None;
        if new && let Ok(made) = sys::stat_at(item.target_dir, item.target, false) {
            let mode = made.st_mode & 0o7777;
            if mode & 0o700 != 0o700 {
                final_mode = Some(mode);
                let _ = sys::chmod_at(item.target_dir, item.target, mode | 0o700);
            }
            if !keeps.ownership && !keeps.mode && !options.no_preserve_mode {
                // What the mask of a default ACL took away is given back.
                let missing = stat.st_mode & 0o022 & !options.umask & !mode;
                if missing != 0 {
                    final_mode = Some(mode | missing);
                }
            } else if keeps.ownership && !keeps.mode && !options.no_preserve_mode {
                let wanted = stat.st_mode & 0o1777 & !options.umask;
                final_mode = Some(wanted | mode & 0o2000);
            }
        }
        let path = |side| item.quoted(side);
        let source = open_dir(item.source_dir, item.source, follow).inspect_err(|e| {
            complain_of(&format!("cannot access {}", path(Side::Source)), e);
        });
        // An existing target of the command line may be reached through a link: `cp -r a link/`.
        let target_follow = item.is_top() && !new;
        let target = open_dir(item.target_dir, item.target, target_follow).inspect_err(|e| {
            complain_of(&format!("cannot access {}", path(Side::Target)), e);
        });
        let restore = || {
            if let Some(mode) = final_mode {
                let _ = sys::chmod_at(item.target_dir, item.target, mode);
            }
        };
        let (Ok(source), Ok(target)) = (source, target) else {
            restore();
            return None;
        };
        let ids = (sys::stat_of(source.as_raw_fd()), sys::stat_of(target.as_raw_fd()));
        let (Ok(now), Ok(there)) = ids else { return None };
        let gives_acl =
            (keeps.mode || options.no_preserve_mode) && attributes::gives_acl(target.as_raw_fd());
        Some(Opened {
            source,
            target_id: sys::id(&there),
            target,
            stat: now,
            made: new,
            final_mode,
            gives_acl,
        })
    }
}

/// Whether the name is one of the current directory, as far as can be seen: else making it fails anyway.
fn is_here(path: &OsStr) -> bool {
    let bytes = path.as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    let Some(slash) = bytes[..end].iter().rposition(|&byte| byte == b'/') else { return true };
    let id = |path: &[u8]| sys::stat_at(sys::CWD, &sys::c_string(path), true).map(|s| sys::id(&s));
    match (id(b"."), id(&bytes[..slash.max(1)])) {
        (Ok(here), Ok(parent)) => here == parent,
        _ => true,
    }
}

/// A path in a message of GNU's that quotes only what needs it.
fn shown(path: &OsStr) -> String {
    let plain = path
        .as_bytes()
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"_-./+,@%:~".contains(byte));
    if plain { path.to_string_lossy().into_owned() } else { quote(path) }
}

pub(super) fn is_newer(stat: &Stat, than: &Stat) -> bool {
    (stat.st_mtime, stat.st_mtime_nsec) > (than.st_mtime, than.st_mtime_nsec)
}
