//! Copies one directory: creates it if it does not exist, opens both sides, starts its listing.

use crate::attributes;
use crate::compare::entry;
use crate::messages::quote;
use crate::summary::Counters;
use crate::sys::{self, Stat};
use crate::tree::{Dir, Item, Opened, Root, Side};
use crate::workers::{Task, Worker, lock};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Worker<'_> {
    /// Creates the directory if `new`, and starts the copy of its entries.
    pub(crate) fn enter(&mut self, item: &Item<'_>, stat: &Stat, new: bool) -> bool {
        if self.is_own_target(item, stat) {
            return false;
        }
        if let Some(good) = self.is_copied_elsewhere(item, stat) {
            return good;
        }
        if self.is_cycle(item, stat) {
            return false;
        }
        let options = &self.shared.options;
        let follow = options.follows(item.is_top());
        let root = item
            .dir
            .map_or_else(|| Arc::new(Root::new(options, item, stat)), |dir| Arc::clone(&dir.root));
        let key = self.key_of(item);
        if new && !(self.announce(key, libc::S_IFDIR) && self.make_dir(item, stat)) {
            if item.is_top() {
                lock(&self.shared.directories).remove(&sys::id(stat));
            }
            return false;
        }
        let Some(opened) = self.open_both(item, stat, (new, key), follow) else {
            if new && options.verbose {
                self.print_copied(item, None);
            }
            return false;
        };
        if !new {
            self.remove_leftovers(item, &opened);
        }
        // A target of the command line counts even if it existed: `cp -r . sub` would never end.
        if new || item.is_top() {
            let _ = root.first_made.set(opened.target_id);
        }
        if new && options.verbose {
            self.print_copied(item, None);
        }
        Counters::add(&self.shared.counters.directories, 1);
        if let Some(parent) = item.dir {
            parent.pending.fetch_add(1, Ordering::Relaxed);
        } else {
            self.shared.begin_root();
        }
        let names = (item.source.to_owned(), item.target.to_owned());
        let elsewhere = options.one_file_system && opened.stat.st_dev != root.device;
        let dir = Dir::new(item.dir.cloned(), root, names, opened, &self.shared.open);
        if elsewhere {
            self.part_done(dir);
        } else {
            self.push_counted(Task::List { dir, unfinished: None });
        }
        true
    }

    /// Reports a directory that the copy itself created or copies into. On another file system,
    /// `-x` leaves out what it contains: `cp -ax / /mnt` is complete.
    fn is_own_target(&self, item: &Item<'_>, stat: &Stat) -> bool {
        let Some(root) = item.dir.map(|dir| &dir.root) else { return false };
        let is_left_out = self.shared.options.one_file_system && stat.st_dev != root.device;
        let is_own = !is_left_out && root.first_made.get() == Some(&sys::id(stat));
        if is_own {
            let (source, target) = (quote(&root.source), quote(&root.target));
            self.reporter()
                .fail(&format!("cannot copy a directory, {source}, into itself, {target}"));
        }
        is_own
    }

    /// Reports a link that leads back to a directory above.
    fn is_cycle(&self, item: &Item<'_>, stat: &Stat) -> bool {
        let is_cycle = self.shared.options.follows(false)
            && item.dir.is_some_and(|dir| dir.is_within(sys::id(stat)));
        if is_cycle {
            let name = item.quoted(Side::Source);
            self.reporter().fail(&format!("cannot copy cyclic symbolic link {name}"));
        }
        is_cycle
    }

    /// Handles a directory of the command line that has been copied before, which GNU's treats as a
    /// hard link and refuses to make. Returns `None` for the first copy, or where links are
    /// followed.
    fn is_copied_elsewhere(&self, item: &Item<'_>, stat: &Stat) -> Option<bool> {
        let mut directories = lock(&self.shared.directories);
        let Some(earlier) = directories.get(&sys::id(stat)) else {
            if item.is_top() {
                directories.insert(sys::id(stat), item.path(Side::Target));
            }
            return None;
        };
        let target = item.path(Side::Target);
        if *earlier == target || entry(earlier) == entry(&target) {
            let top = item.dir.map(|dir| dir.root.source.clone());
            let name = quote(top.unwrap_or_else(|| item.path(Side::Source)));
            self.reporter()
                .note(&format!("warning: source directory {name} specified more than once"));
            return Some(true);
        }
        if self.shared.options.follows(item.is_top()) {
            return None;
        }
        let (new, old) = (item.quoted(Side::Target), quote(earlier));
        self.reporter().fail(&format!("will not create hard link {new} to directory {old}"));
        Some(false)
    }

    /// Removes what an earlier run of this copy has left in an existing target.
    fn remove_leftovers(&self, item: &Item<'_>, opened: &Opened) {
        if let Some(resume) = &self.shared.resume
            && resume.has_earlier()
            && let Some(target) = &opened.target
        {
            resume.remove_leftovers(self.reporter(), target, &|| item.quoted(Side::Target));
        }
    }

    /// Creates the directory; reports a failure.
    fn make_dir(&self, item: &Item<'_>, stat: &Stat) -> bool {
        let options = &self.shared.options;
        let keeps = options.preserve;
        let mode = if options.no_preserve_mode {
            0o777 | stat.st_mode & 0o1000
        } else if keeps.mode {
            0o700
        } else {
            // A default ACL replaces the umask; these bits are cleared in either case.
            let omitted = if keeps.ownership { 0o077 } else { options.umask & 0o022 };
            stat.st_mode & 0o1777 & !omitted
        };
        let failed = |e: &_| {
            self.reporter().fail_on("cannot create directory", item.quoted(Side::Target), e);
        };
        sys::mkdir_at(item.target_dir, item.target, mode).inspect_err(failed).is_ok()
    }

    /// Returns the mode that a directory of an earlier run would get if it were created now; `None`
    /// if the mode is preserved, or an ACL determines it.
    fn renewed_mode(&self, stat: &Stat, (target, found): (&OwnedFd, &Stat)) -> Option<u32> {
        let options = &self.shared.options;
        let is_set_otherwise =
            options.preserve.mode || options.preserve.ownership || options.no_preserve_mode;
        let is_plain = !is_set_otherwise && !attributes::has_acl(target.as_fd());
        is_plain.then_some(stat.st_mode & 0o1777 & !options.umask | found.st_mode & 0o2000)
    }

    /// Opens both sides, and grants what is needed to fill a new directory. Returns `None` after a
    /// failure.
    fn open_both(
        &self,
        item: &Item<'_>,
        stat: &Stat,
        (new, key): (bool, u128),
        follow: bool,
    ) -> Option<Opened> {
        let options = &self.shared.options;
        // The new directory may lack the permissions needed to fill it (mode 0555, a strict umask).
        let keeps = options.preserve;
        let mut final_mode = None;
        let resume = self.shared.resume.as_ref();
        let made = new || resume.is_some_and(|resume| resume.has_made(key, libc::S_IFDIR));
        if made && let Ok(found) = sys::stat_at(item.target_dir, item.target, false) {
            let earlier = resume.and_then(|resume| resume.final_mode(key));
            let mode = earlier.unwrap_or(found.st_mode & 0o7777);
            // What was omitted at first, or cleared by the mask of a default ACL.
            let omitted = match keeps {
                _ if keeps.mode || options.no_preserve_mode => 0,
                _ if keeps.ownership => 0o077,
                _ => 0o022,
            };
            let missing = stat.st_mode & omitted & !options.umask & !mode;
            if mode & 0o700 != 0o700 || missing != 0 {
                final_mode = Some(match options.no_preserve_mode {
                    true => attributes::usual_mode(options, stat, mode),
                    false => mode | missing,
                });
            }
            if mode & 0o700 != 0o700
                && resume.is_none_or(|resume| resume.keep_final_mode(self.shared, key, mode))
            {
                let _ = sys::chmod_at(item.target_dir, item.target, mode | 0o700);
            }
        }
        let source = item.open_dir(Side::Source, follow, self.reporter());
        // An existing target of the command line may be reached through a link: `cp -r a link/`.
        let target_follow = item.is_top() && !new;
        let target = item.open_dir(Side::Target, target_follow, self.reporter());
        let (Ok((source, now)), Ok((target, target_stat))) = (source, target) else {
            // A directory that cannot be listed still gets its attributes.
            attributes::apply_by_name(options, item, stat, made);
            if !keeps.mode
                && let Some(mode) = final_mode
            {
                let _ = sys::chmod_at(item.target_dir, item.target, mode);
            }
            return None;
        };
        if made && !new {
            final_mode = self.renewed_mode(stat, (&target, &target_stat)).or(final_mode);
        }
        let gives_default_acl = (keeps.mode || options.no_preserve_mode)
            && attributes::gives_default_acl(target.as_fd());
        Some(Opened {
            source,
            target_id: sys::id(&target_stat),
            target: Some(target),
            stat: now,
            made,
            resumed: made && !new,
            final_mode,
            gives_default_acl,
            key,
        })
    }
}
