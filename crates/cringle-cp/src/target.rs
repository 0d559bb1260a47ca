//! Prepares the target of one name: looks at an existing target and carries out the
//! [decision](crate::decide): asks, backs up, removes or refuses.

use crate::backup;
use crate::compare;
use crate::decide::{Decision, Refusal};
use crate::messages::{mode_letters, quote};
use crate::summary::Counters;
use crate::sys::{self, Stat};
use crate::tree::{Item, Side};
use crate::workers::{Worker, lock};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What remains to be done for a name.
pub(crate) enum Step {
    Go {
        /// The name is free.
        new: bool,
        backup: Option<OsString>,
        existing: Option<Stat>,
    },
    /// Nothing remains; true if that is a success.
    Done(bool),
}

const NEW: Step = Step::Go { new: true, backup: None, existing: None };

impl Worker<'_> {
    /// Prepares the target, which may exist.
    pub(crate) fn prepare_target(&mut self, item: &Item<'_>, stat: &Stat) -> Step {
        let options = &self.shared.options;
        let step = match compare::stat_target(options, item, stat) {
            Ok(existing) => self.apply_decision(item, stat, existing),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => NEW,
            Err(e) => {
                let looped = e.raw_os_error() == Some(libc::ELOOP) && options.force;
                if !looped {
                    self.reporter().fail_on("cannot stat", item.quoted(Side::Target), &e);
                    return Step::Done(false);
                }
                // With -f, a link that leads to itself is removed when it cannot be opened.
                let link = sys::stat_at(item.target_dir, item.target, false).ok();
                // A name that ends in a slash leads through the link, also for that open.
                let new = link.is_none() && sys::kind(stat) == libc::S_IFDIR;
                Step::Go { new, backup: None, existing: link }
            }
        };
        self.refuse_new_link(item, step)
    }

    /// Refuses to write through a link that this copy created.
    fn refuse_new_link(&self, item: &Item<'_>, step: Step) -> Step {
        if item.is_top()
            && matches!(step, Step::Go { .. })
            && self.shared.options.backup.is_none()
            && let Ok(existing) = sys::stat_at(item.target_dir, item.target, false)
            && sys::kind(&existing) == libc::S_IFLNK
            && self.was_made_by_this_copy(item, &existing)
        {
            let (source, target) = (item.quoted(Side::Source), item.quoted(Side::Target));
            self.reporter()
                .fail(&format!("will not copy {source} through just-created symlink {target}"));
            return Step::Done(false);
        }
        step
    }

    /// Decides about an existing target, and carries the decision out.
    fn apply_decision(&self, item: &Item<'_>, source: &Stat, existing: Stat) -> Step {
        let was_made = item.is_top() && self.was_made_by_this_copy(item, &existing);
        let ask = || self.ask(item, &existing);
        let options = &self.shared.options;
        match compare::decide_target(options, item, source, &existing, was_made, ask) {
            Decision::Overwrite => Step::Go { new: false, backup: None, existing: Some(existing) },
            Decision::RemoveFirst => self.remove(item),
            Decision::BackUp => self.back_up(item),
            Decision::KeepNewer => {
                self.print_skipped(item);
                self.count_kept(source);
                self.remember_link(item, source);
                Step::Done(true)
            }
            Decision::Keep => {
                self.print_skipped(item);
                self.count_kept(source);
                Step::Done(true)
            }
            Decision::AlreadySame | Decision::Declined | Decision::Ask => Step::Done(true),
            Decision::Refuse(why) => {
                self.reporter().fail(&refusal(why, item));
                Step::Done(false)
            }
        }
    }

    fn remove(&self, item: &Item<'_>) -> Step {
        match sys::unlink_at(item.target_dir, item.target) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
            Err(e) => {
                self.reporter().fail_on("cannot remove", item.quoted(Side::Target), &e);
                return Step::Done(false);
            }
        }
        if self.shared.options.verbose {
            self.reporter().print(&format!("removed {}", item.quoted(Side::Target)));
        }
        NEW
    }

    fn back_up(&self, item: &Item<'_>) -> Step {
        let options = &self.shared.options;
        let Some(kind) = options.backup else { return NEW };
        match backup::make(kind, &options.suffix, (item.target_dir, item.target)) {
            Ok(name) => {
                let backup = name.map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
                Step::Go { new: true, backup, existing: None }
            }
            Err(e) => {
                self.reporter().fail_on("cannot backup", item.quoted(Side::Target), &e);
                Step::Done(false)
            }
        }
    }

    fn was_made_by_this_copy(&self, item: &Item<'_>, stat: &Stat) -> bool {
        let targets = lock(&self.shared.targets);
        !targets.is_empty() && targets.contains(&(item.path(Side::Target), sys::id(stat)))
    }

    /// Renames the backup back after a failed copy.
    pub(crate) fn undo_backup(&self, item: &Item<'_>, backup: &OsStr) {
        let backup = sys::c_string(backup.as_bytes());
        let dir = item.target_dir;
        if let Err(e) = sys::rename_at((dir, &backup), (dir, item.target)) {
            self.reporter().fail_on("cannot un-backup", item.quoted(Side::Target), &e);
        } else if self.shared.options.verbose {
            let name = quote(backup_path(item, OsStr::from_bytes(backup.to_bytes())));
            self.reporter().print(&format!("{name} -> {} (unbackup)", item.quoted(Side::Target)));
        }
    }

    /// Counts a file that is not copied, for the progress.
    pub(crate) fn count_kept(&self, source: &Stat) {
        if sys::kind(source) == libc::S_IFREG {
            let counters = &self.shared.counters;
            Counters::add(&counters.kept_files, 1);
            Counters::add(&counters.kept_bytes, source.st_size as u64);
        }
    }

    fn print_skipped(&self, item: &Item<'_>) {
        if self.shared.options.debug {
            self.reporter().print(&format!("skipped {}", item.quoted(Side::Target)));
        }
    }

    /// Asks the question of `-i`.
    fn ask(&self, item: &Item<'_>, existing: &Stat) -> bool {
        let options = &self.shared.options;
        let target = item.quoted(Side::Target);
        let is_link = sys::kind(existing) == libc::S_IFLNK;
        let text = if is_link || sys::accessible(item.target_dir, item.target, libc::W_OK) {
            format!("{}: overwrite {target}? ", self.reporter().program())
        } else {
            let mode = existing.st_mode & 0o7777;
            let letters = mode_letters(mode);
            if options.force || options.remove_first {
                format!(
                    "{}: replace {target}, overriding mode {mode:04o} ({letters})? ",
                    self.reporter().program()
                )
            } else {
                format!(
                    "{}: unwritable {target} (mode {mode:04o}, {letters}); try anyway? ",
                    self.reporter().program()
                )
            }
        };
        self.reporter().write_error(&text);
        matches!(self.first_byte_of_line(), Some(b'y' | b'Y'))
    }

    /// Returns the first byte of the next line of standard input. `None` after a stop, or if the
    /// line is empty or cannot be read. Bytes after that line are not read.
    fn first_byte_of_line(&self) -> Option<u8> {
        let stdin = io::stdin();
        let mut first = None;
        let mut byte = [0];
        while self.shared.stop.wait_readable(stdin.as_fd()) {
            match sys::read_standard_input(&mut byte) {
                Ok(1) if byte != *b"\n" => _ = first.get_or_insert(byte[0]),
                Ok(_) => break,
                Err(e) => {
                    self.reporter().fail_with("cannot read the answer", &e);
                    return None;
                }
            }
        }
        first.filter(|_| !self.shared.stopped())
    }
}

/// Returns the path of the backup, which is in the target's directory.
pub(crate) fn backup_path(item: &Item<'_>, backup: &OsStr) -> OsString {
    let mut path = item.path(Side::Target).into_vec();
    let start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    path.truncate(start);
    path.extend_from_slice(compare::last_part(backup.as_bytes()));
    OsString::from_vec(path)
}

/// Returns GNU's message for a target that is not replaced.
pub(crate) fn refusal(why: Refusal, item: &Item<'_>) -> String {
    let (source, target) = (item.quoted(Side::Source), item.quoted(Side::Target));
    match why {
        Refusal::SameFile => format!("{source} and {target} are the same file"),
        Refusal::NotReplacing => format!("not replacing {target}"),
        Refusal::DirectoryOntoOther => {
            format!("cannot overwrite non-directory {target} with directory {source}")
        }
        Refusal::OtherOntoDirectory => {
            format!("cannot overwrite directory {target} with non-directory")
        }
        Refusal::JustMade => format!("will not overwrite just-created {target} with {source}"),
        Refusal::BackupDestroysSource => {
            format!("backing up {target} might destroy source;  {source} not copied")
        }
    }
}
