//! Finds the files that an earlier run has completed, and records those that this run completes.

use super::manifest::FileEntry;
use super::{Content, Recorded, Resume, look};
use crate::attributes::{self, Applied, Copied};
use crate::hard_links::Made;
use crate::regular::{CopyError, open_source};
use crate::sys::{self, Stat, Statx};
use crate::tree::{Item, Side};
use crate::workers::Worker;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The result of examining a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Whole,
    /// It has to be copied.
    Partial,
    /// It is whole, but its attributes could not be set, which has been reported.
    Failed,
    /// A stop was requested.
    Stopped,
}

impl<'a> Worker<'a> {
    fn resume(&self) -> Option<&'a Resume> {
        self.shared.resume.as_ref()
    }

    /// Returns what this file is if the command writes it for itself: its manifest, or a result.
    pub(crate) fn own_file(&self, stat: &Stat) -> Option<String> {
        let id = sys::id(stat);
        if self.resume().is_some_and(|resume| resume.id() == id) {
            return Some("the manifest of this copy".into());
        }
        let (option, _) = self.shared.results.iter().find(|result| result.1 == id)?;
        Some(format!("the file of {option}"))
    }

    /// Returns the key of a name in the manifest, or 0 without a manifest.
    pub(crate) fn key_of(&self, item: &Item<'_>) -> u128 {
        let Some(resume) = self.resume() else { return 0 };
        match item.dir {
            Some(dir) => resume.keys.below(dir.key, item.source.to_bytes()),
            None => resume.keys.of_command_line(item.source.to_bytes(), item.target.to_bytes()),
        }
    }

    /// Describes the source for the manifest, as it was when the copy began to read it.
    pub(crate) fn describe_source(&mut self, item: &Item<'_>, stat: &Stat) -> Option<Recorded> {
        let resume = self.resume()?;
        if sys::kind(stat) != libc::S_IFREG {
            return None;
        }
        let key = if self.keeps_links(item, stat) {
            resume.keys.of_file(sys::id(stat))
        } else {
            self.key_of(item)
        };
        let recorded = resume.keys.recorded(key, stat, self.looked);
        let is_recent = recorded.is_recent || !self.has_change_times(item, stat);
        Some(Recorded { is_recent, ..recorded })
    }

    /// Returns whether the times of the source show every change; asks once for each device.
    fn has_change_times(&mut self, item: &Item<'_>, stat: &Stat) -> bool {
        if let Some((_, known)) = self.change_times.iter().find(|known| known.0 == stat.st_dev) {
            return *known;
        }
        let no_follow =
            if self.shared.options.follows(item.is_top()) { 0 } else { libc::O_NOFOLLOW };
        let opened = sys::open_at(item.source_dir, item.source, libc::O_PATH | no_follow, 0);
        // It may have been replaced meanwhile.
        let is_there =
            |file: &OwnedFd| sys::stat_of(file).is_ok_and(|now| now.st_dev == stat.st_dev);
        let Some(file) = opened.ok().filter(is_there) else { return false };
        let has = sys::has_change_times(file.as_fd());
        self.change_times.push((stat.st_dev, has));
        has
    }

    /// Records a complete file. `follow`: it was written through a link.
    pub(crate) fn record(&mut self, item: &Item<'_>, recorded: Option<Recorded>, follow: bool) {
        let place = (item.target_dir, item.target);
        self.recorded = recorded.and_then(|recorded| self.record_at(place, recorded, follow));
    }

    /// Completes the description by the file of this name, which gets its final one next: another
    /// program may find it then, and change it before it is recorded.
    pub(crate) fn before_rename(
        &self,
        (dir, name): sys::Place<'_>,
        recorded: Option<Recorded>,
    ) -> Option<Recorded> {
        let recorded = recorded?;
        let content = Some(Content::of(&look(dir, name, false)?));
        Some(Recorded { content, ..recorded })
    }

    /// Records the file of this name, unless it has changed; returns what describes it now.
    pub(crate) fn record_at(
        &self,
        (dir, name): sys::Place<'_>,
        recorded: Recorded,
        follow: bool,
    ) -> Option<Recorded> {
        let target = look(dir, name, follow)?;
        let content = Content::of(&target);
        if recorded.content.is_some_and(|before| before != content) {
            return None;
        }
        self.resume()?.push(self.shared, recorded, &target);
        Some(Recorded { content: Some(content), ..recorded })
    }

    /// Skips a file that an earlier run has completed. Returns whether that is a success; `None` if
    /// the file has to be copied.
    pub(crate) fn skip_whole(&mut self, item: &Item<'_>, stat: &Stat) -> Option<bool> {
        let resume = self.resume().filter(|resume| resume.has_earlier())?;
        (self.is_own_copy, self.is_own_file) = (false, self.has_created(resume, item));
        let recorded = self.describe_source(item, stat)?;
        let entry = resume.earlier.get(&recorded.key);
        let links = self.keeps_links(item, stat);
        if links && let Some(made) = self.shared.links.begin(sys::id(stat)) {
            // Another name was whole, or has been copied.
            return self.is_name_of(item, &made).then_some(true);
        }
        let verdict = match entry {
            Some(entry) => self.examine(resume, item, stat, (entry, recorded)),
            None => self.examine_unwritable(item, stat, recorded),
        };
        if links {
            let recorded = self.recorded;
            let made = || Made { dir: item.dir.cloned(), name: item.target.to_owned(), recorded };
            self.shared.links.done(sys::id(stat), (verdict == Verdict::Whole).then(made));
        }
        match verdict {
            Verdict::Partial => None,
            Verdict::Failed => Some(false),
            Verdict::Stopped => Some(true),
            Verdict::Whole => {
                if item.is_top() {
                    self.remember_target(item);
                }
                self.count_kept(stat);
                Some(true)
            }
        }
    }

    /// Returns whether the target is already a name of that copy.
    fn is_name_of(&self, item: &Item<'_>, made: &Made) -> bool {
        let dir = made.dir.as_ref().map(|dir| dir.fd(Side::Target, &self.shared.open));
        let Ok(dir) = dir.transpose() else { return false };
        let first = sys::stat_at(sys::or_cwd(&dir), &made.name, false);
        sys::same(first, sys::stat_at(item.target_dir, item.target, false))
    }

    /// Examines a recorded file.
    fn examine(
        &mut self,
        resume: &Resume,
        item: &Item<'_>,
        stat: &Stat,
        (entry, recorded): (&FileEntry, Recorded),
    ) -> Verdict {
        let Some(target) = look(item.target_dir, item.target, true) else {
            return Verdict::Partial;
        };
        let is_target_same = entry.target == resume.keys.target(&target, entry.is_durable);
        if entry.source != recorded.source {
            self.is_own_copy = is_target_same;
            return Verdict::Partial;
        }
        let is_proven =
            is_target_same && !entry.is_recent && entry.inode_and_user == recorded.inode_and_user;
        if is_proven && !self.shared.options.check_content {
            if !self.keeps_apart(stat, &target) {
                return Verdict::Partial;
            }
            let content = Some(Content::of(&target));
            self.recorded = Some(Recorded { is_recent: false, content, ..recorded });
            return Verdict::Whole;
        }
        self.examine_content(item, stat, recorded, &target)
    }

    /// Returns whether the target is the copy of no other source. Two copies may have been linked
    /// to one another meanwhile, which a copy that preserves links would undo.
    fn keeps_apart(&self, stat: &Stat, target: &Statx) -> bool {
        let id = (target.stx_dev_major, target.stx_dev_minor, target.stx_ino);
        target.stx_nlink == 1
            || !self.shared.options.preserve.links
            || self.shared.links.keep(id, sys::id(stat))
    }

    /// Examines a file that may not be written, which a copy would have to do. It may be complete,
    /// but not recorded.
    fn examine_unwritable(&mut self, item: &Item<'_>, stat: &Stat, recorded: Recorded) -> Verdict {
        match look(item.target_dir, item.target, true) {
            Some(target) if !sys::accessible(item.target_dir, item.target, libc::W_OK) => {
                self.examine_content(item, stat, recorded, &target)
            }
            _ => Verdict::Partial,
        }
    }

    /// Compares the contents. If they are the same, sets the attributes again and records the file
    /// again.
    fn examine_content(
        &mut self,
        item: &Item<'_>,
        stat: &Stat,
        recorded: Recorded,
        target: &Statx,
    ) -> Verdict {
        let is_regular = u32::from(target.stx_mode) & libc::S_IFMT == libc::S_IFREG;
        if !is_regular || target.stx_size != stat.st_size as u64 {
            return Verdict::Partial;
        }
        let follow = self.shared.options.follows(item.is_top());
        let flags = libc::O_RDONLY | libc::O_NONBLOCK;
        let opened = open_source(item, follow)
            .and_then(|from| Ok((from, sys::open_at(item.target_dir, item.target, flags, 0)?)));
        let Ok((from, to)) = opened else { return Verdict::Partial };
        // Both are still the files that were examined.
        let source_id = sys::stat_of(from.as_fd()).map(|now| sys::id(&now));
        let target_id = sys::stat_of(to.as_fd()).map(|now| sys::id(&now));
        let (Ok(source_id), Ok(target_id)) = (source_id, target_id) else {
            return Verdict::Partial;
        };
        if source_id != sys::id(stat) || target_id.1 != target.stx_ino || source_id == target_id {
            return Verdict::Partial;
        }
        let Ok(before) = sys::statx_of(to.as_fd()) else { return Verdict::Partial };
        match self.same_content(from.as_fd(), to.as_fd()) {
            Ok(()) if !self.keeps_apart(stat, target) => Verdict::Partial,
            Ok(()) => self.complete_again(item, stat, recorded, (&from, &to, &before)),
            Err(CopyError::Stopped) => Verdict::Stopped,
            // The copy reports what cannot be read.
            Err(_) => Verdict::Partial,
        }
    }

    fn same_content(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), CopyError> {
        if self.shared.options.verify {
            self.verify(from, to)
        } else {
            self.compare((from, to), true)
        }
    }

    /// Sets the attributes of a file with the right content, syncs it if requested, and records it.
    /// `before`: its status before the contents were compared. If another program has changed it
    /// since, it is copied again.
    fn complete_again(
        &mut self,
        item: &Item<'_>,
        stat: &Stat,
        recorded: Recorded,
        (from, to, before): (&OwnedFd, &OwnedFd, &Statx),
    ) -> Verdict {
        let Some(resume) = self.resume() else { return Verdict::Partial };
        let (source, target) = (from.as_fd(), to.as_fd());
        let status = |target: &Statx| resume.keys.target(target, true);
        if !sys::statx_of(target).is_ok_and(|now| status(&now) == status(before)) {
            return Verdict::Partial;
        }
        let (made, may_have_acl, resumed) = (false, true, self.is_own_file);
        let copied = Copied { item, source, target, stat, made, may_have_acl, resumed };
        if attributes::apply(&self.shared.options, &copied) != Applied::Good {
            return Verdict::Failed;
        }
        if self.shared.options.fsync && sys::sync_fd(target).is_err() {
            return Verdict::Partial;
        }
        let times = self.shared.options.preserve.timestamps.then_some(stat);
        let before = Content::of(before);
        match sys::statx_of(target) {
            Ok(now) if before.is_kept_by(Content::of(&now), times) => {
                resume.push(self.shared, recorded, &now);
                self.recorded = Some(Recorded { content: Some(Content::of(&now)), ..recorded });
                Verdict::Whole
            }
            _ => Verdict::Partial,
        }
    }
}
