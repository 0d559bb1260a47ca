//! The target of one name: looks at what exists there, has [`decide`] say what becomes of it, and does that:
//! asks, backs up, removes, refuses.

use crate::backup;
use crate::compare;
use crate::decide::{Decision, Facts, Kind, Node, Refusal, Rules, decide};
use crate::messages::{mode_letters, quote};
use crate::sys::{self, Stat};
use crate::tree::{Item, Side};
use crate::workers::Worker;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::PoisonError;

/// What is left to do.
pub(crate) enum Step {
    Go {
        /// Nothing has the name, or nothing any more.
        new: bool,
        backup: Option<OsString>,
        existing: Option<Stat>,
    },
    /// Nothing; whether that is a success.
    Done(bool),
}

const NEW: Step = Step::Go { new: true, backup: None, existing: None };

impl Worker<'_> {
    pub(crate) fn look_at_target(&mut self, item: &Item<'_>, stat: &Stat) -> Step {
        let options = &self.shared.options;
        let rules = Rules::of(options, item.is_top());
        let source = Node::of(stat);
        let through = rules.looks_through(source.kind);
        let step = match sys::stat_at(item.target_dir, item.target, through) {
            Ok(existing) => self.settle_target(item, &rules, source, existing),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => NEW,
            Err(e) => {
                let looped = e.raw_os_error() == Some(libc::ELOOP) && options.force;
                if !looped {
                    self.reporter()
                        .fail_with(&format!("cannot stat {}", item.quoted(Side::Target)), &e);
                    return Step::Done(false);
                }
                // With -f, a link that leads to itself is removed when it cannot be opened.
                let link = sys::stat_at(item.target_dir, item.target, false).ok();
                // (A name with a slash leads through it, and is looked at by that open, too.)
                let new = link.is_none() && source.kind == Kind::Directory;
                Step::Go { new, backup: None, existing: link }
            }
        };
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
            self.reporter()
                .fail(&format!("will not copy {source} through just-created symlink {target}"));
            return Step::Done(false);
        }
        step
    }

    fn facts(&self, item: &Item<'_>, rules: &Rules, source: Node, existing: &Stat) -> Facts {
        let target = Node::of(existing);
        Facts {
            source,
            target,
            names: compare::names(rules, item, &source, &target),
            just_made: item.is_top() && self.was_just_made(item, existing),
            is_dots: matches!(compare::last_part(item.source.to_bytes()), b"." | b".."),
            backup_is_source: compare::source_is_backup(&self.shared.options, item, &source),
            time_step: compare::time_step(&self.shared.options, item, existing),
            answer: None,
        }
    }

    fn settle_target(
        &mut self,
        item: &Item<'_>,
        rules: &Rules,
        source: Node,
        existing: Stat,
    ) -> Step {
        let mut facts = self.facts(item, rules, source, &existing);
        let mut decision = decide(rules, &facts);
        if decision == Decision::Ask {
            facts.answer = Some(self.ask(item, &existing));
            decision = decide(rules, &facts);
        }
        match decision {
            Decision::Onto => Step::Go { new: false, backup: None, existing: Some(existing) },
            Decision::Remove => self.remove(item),
            Decision::BackUp => self.back_up(item),
            Decision::KeepNewer => {
                self.debug_skipped(item);
                self.remember_link(item, source.id, source.links);
                Step::Done(true)
            }
            Decision::Keep => {
                self.debug_skipped(item);
                Step::Done(true)
            }
            Decision::Nothing | Decision::Declined | Decision::Ask => Step::Done(true),
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
                self.reporter()
                    .fail_with(&format!("cannot remove {}", item.quoted(Side::Target)), &e);
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
                self.reporter()
                    .fail_with(&format!("cannot backup {}", item.quoted(Side::Target)), &e);
                Step::Done(false)
            }
        }
    }

    fn was_just_made(&self, item: &Item<'_>, stat: &Stat) -> bool {
        let targets = self.shared.targets.lock().unwrap_or_else(PoisonError::into_inner);
        !targets.is_empty() && targets.contains(&(item.path(Side::Target), sys::id(stat)))
    }

    pub(crate) fn undo_backup(&self, item: &Item<'_>, backup: &OsStr) {
        let backup = sys::c_string(backup.as_bytes());
        let dir = item.target_dir;
        if let Err(e) = sys::rename_at((dir, &backup), (dir, item.target)) {
            self.reporter()
                .fail_with(&format!("cannot un-backup {}", item.quoted(Side::Target)), &e);
        } else if self.shared.options.verbose {
            let name = quote(backup_path(item, OsStr::from_bytes(backup.to_bytes())));
            self.reporter().print(&format!("{name} -> {} (unbackup)", item.quoted(Side::Target)));
        }
    }

    fn debug_skipped(&self, item: &Item<'_>) {
        if self.shared.options.debug {
            self.reporter().print(&format!("skipped {}", item.quoted(Side::Target)));
        }
    }

    fn ask(&self, item: &Item<'_>, existing: &Stat) -> bool {
        let options = &self.shared.options;
        let target = item.quoted(Side::Target);
        let is_link = sys::kind(existing) == libc::S_IFLNK;
        let text = if is_link || sys::writable_at(item.target_dir, item.target) {
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
        let _ = io::stderr().write_all(text.as_bytes());
        matches!(self.first_of_line(), Some(b'y' | b'Y'))
    }

    /// The first byte of the next line of standard input. `None` after Ctrl-C, or if the line is empty. The
    /// rest of the input is left there.
    fn first_of_line(&self) -> Option<u8> {
        let mut first = None;
        let mut byte = [0];
        while self.shared.stop.wait_readable(0)
            && sys::read(0, &mut byte).is_ok_and(|n| n == 1)
            && byte != *b"\n"
        {
            first.get_or_insert(byte[0]);
        }
        first.filter(|_| !self.shared.stopped())
    }
}

/// The backup in the directory of the target.
pub(crate) fn backup_path(item: &Item<'_>, backup: &OsStr) -> OsString {
    let mut path = item.path(Side::Target).into_vec();
    let start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    path.truncate(start);
    path.extend_from_slice(compare::last_part(backup.as_bytes()));
    OsString::from_vec(path)
}

/// Why a target is not replaced, in GNU's words.
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
