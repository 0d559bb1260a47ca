//! `--fsync`: syncs the data of many files at once, before they get their names.
//!
//! A file has a temporary name until its data are on the disk; a directory is synced after its
//! files have their names. Where one `syncfs(2)` does what an `fsync(2)` of each file would do, it
//! serves some hundred files, which need not stay open. It also writes the unwritten data of other
//! programs and returns their errors: where these data are many, and on other file systems, each
//! file has its own fsync. A fiber for each file keeps several of them in the kernel at the same
//! time.

use crate::messages::{Reporter, quote};
use crate::replace::directory_of;
use crate::resume::Recorded;
use crate::sys;
use crate::tree::{Dir, Item, Side, join};
use crate::workers::{Worker, lock};
use cringle::fiber;
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// The files of one worker that share a `syncfs`.
const FILES_PER_SYNCFS: usize = 512;
/// The unwritten data of other programs that a `syncfs` may write.
const FOREIGN_DIRTY_BYTES: u64 = 512 << 20;

/// A file or directory that waits for its sync.
pub(crate) struct Unsynced {
    /// Open for an fsync of its own.
    file: Option<Arc<OwnedFd>>,
    device: u64,
    /// The directory that waits for this file.
    dir: Option<Arc<Dir>>,
    /// Set if this is a directory.
    directory: Option<Arc<Dir>>,
    rename: Option<Rename>,
    /// The name to which the old file was renamed.
    backup: Option<CString>,
    /// The name within `dir`, or the whole path.
    name: CString,
    /// The record of the manifest, which is written after the sync.
    recorded: Option<Recorded>,
}

impl Unsynced {
    /// Returns the path for messages. It is built on demand, because a deep tree has long paths.
    fn quoted(&self) -> String {
        let mut path = match (&self.directory, &self.dir) {
            (Some(dir), _) => return quote(dir.path(Side::Target)),
            (None, Some(dir)) => dir.path(Side::Target).into_vec(),
            (None, None) => Vec::new(),
        };
        join(&mut path, self.name.to_bytes());
        quote(OsString::from_vec(path))
    }
}

/// A rename from a temporary name to the final one.
pub(crate) struct Rename {
    pub(crate) temporary: CString,
    pub(crate) name: CString,
    pub(crate) keep_existing: bool,
}

impl Rename {
    /// Removes the temporary file, and reports a failure.
    pub(crate) fn remove(&self, dir: BorrowedFd<'_>, reporter: &Reporter) {
        match sys::unlink_at(dir, &self.temporary) {
            Err(e) if e.raw_os_error() != Some(libc::ENOENT) => {
                let name = std::ffi::OsStr::from_bytes(self.temporary.to_bytes());
                reporter.fail_on("cannot remove", quote(name), &e);
            }
            _ => {}
        }
    }
}

impl Worker<'_> {
    /// Queues a finished directory for its sync.
    pub(crate) fn sync_dir_later(&mut self, file: &Arc<OwnedFd>, dir: &Arc<Dir>) {
        let device = dir.target_device();
        let open = || sys::open_at(file.as_fd(), c".", libc::O_RDONLY | libc::O_DIRECTORY, 0);
        let file = (!self.can_sync_file_system(device, open)).then(|| Arc::clone(file));
        let (directory, name) = (Some(Arc::clone(dir)), CString::default());
        self.sync_later(Unsynced {
            file,
            device,
            dir: None,
            directory,
            rename: None,
            backup: None,
            name,
            recorded: None,
        });
    }

    /// Queues a file for its sync. Returns false if it cannot be closed, which has been reported.
    pub(crate) fn sync_file_later(
        &mut self,
        file: OwnedFd,
        item: &Item<'_>,
        rename: Option<Rename>,
        (others_link_to_it, recorded): (bool, Option<Recorded>),
    ) -> bool {
        let beside = rename.is_some();
        let (device, disk) = match item.dir {
            Some(dir) if beside => (dir.target_device(), true),
            _ => sys::stat_of(file.as_fd()).map_or((0, true), |stat| {
                let kinds = [libc::S_IFREG, libc::S_IFBLK];
                (stat.st_dev, kinds.contains(&sys::kind(&stat)))
            }),
        };
        // A file that is written in place may be on another file system than its directory: behind
        // a link or a mount. It may also be a device.
        let whole =
            beside && !others_link_to_it && self.can_sync_file_system(device, || file.try_clone());
        let file = if whole || !disk {
            if let Err(e) = sys::close(file) {
                self.reporter().fail_on("failed to close", item.quoted(Side::Target), &e);
                if let Some(rename) = rename {
                    rename.remove(item.target_dir, self.reporter());
                }
                return false;
            }
            None
        } else {
            Some(Arc::new(file))
        };
        if !disk {
            // A pipe or a character device has nothing to sync.
            return true;
        }
        if let Some(dir) = item.dir {
            dir.pending.fetch_add(1, Ordering::Relaxed);
        }
        let (dir, name) = (item.dir.cloned(), item.target.to_owned());
        // If the file is synced now, the caller restores its backup.
        let backup = if others_link_to_it { None } else { self.backup.take() };
        let directory = None;
        let unsynced = Unsynced { file, device, dir, directory, rename, backup, name, recorded };
        if others_link_to_it {
            return self.sync_batch(vec![unsynced]);
        }
        self.sync_later(unsynced);
        true
    }

    /// Syncs the source of `--link` before it gets another name. Returns false if that failed,
    /// which has been reported. One `syncfs` of a worker serves all files that were written to that
    /// file system before.
    pub(crate) fn sync_linked(&mut self, item: &Item<'_>, follow: bool) -> bool {
        let Ok(stat) = sys::stat_at(item.source_dir, item.source, follow) else { return true };
        if sys::kind(&stat) != libc::S_IFREG || self.synced_sources.contains(&stat.st_dev) {
            return true;
        }
        let no_follow = if follow { 0 } else { libc::O_NOFOLLOW };
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | no_follow;
        let open = || sys::open_at(item.source_dir, item.source, flags, 0);
        let synced = if self.can_sync_file_system(stat.st_dev, open) {
            let synced = self.sync_file_system(stat.st_dev);
            if synced.is_ok() {
                self.synced_sources.push(stat.st_dev);
            }
            synced
        } else {
            match open() {
                Ok(file) => sys::sync_fd(file.as_fd()),
                // The file may be linked to, but not read: sync its whole file system.
                Err(_) => sync_file_system_of_source(item, stat.st_dev),
            }
        };
        let failed = |e: &_| {
            self.reporter().fail_on("error syncing", item.quoted(Side::Source), e);
        };
        synced.inspect_err(failed).is_ok()
    }

    /// Returns whether one call can sync the whole file system. Each worker opens its own
    /// descriptor for it before it writes data, because the kernel reports an error once through
    /// each descriptor.
    fn can_sync_file_system(
        &mut self,
        device: u64,
        open: impl FnOnce() -> io::Result<OwnedFd>,
    ) -> bool {
        if let Some((_, whole)) = self.file_systems.iter().find(|(of, _)| *of == device) {
            return whole.is_some();
        }
        let whole = open().ok().filter(|fd| sys::syncfs_is_enough(fd.as_fd()));
        let can = whole.is_some();
        self.file_systems.push((device, whole));
        can
    }

    fn sync_later(&mut self, unsynced: Unsynced) {
        let open = unsynced.file.is_some();
        self.unsynced.push(unsynced);
        let most = if open { self.open_together() } else { FILES_PER_SYNCFS };
        if self.unsynced.len() >= most {
            self.sync_all();
        }
    }

    /// Syncs all queued files and directories. Finishing a directory queues its parent, hence the
    /// loop.
    pub(crate) fn sync_all(&mut self) {
        while !self.unsynced.is_empty() {
            let all = std::mem::take(&mut self.unsynced);
            self.sync_batch(all);
        }
    }

    /// Syncs these and gives them their names; returns whether all succeeded.
    fn sync_batch(&mut self, all: Vec<Unsynced>) -> bool {
        let mut good = true;
        let each =
            all.iter().any(|unsynced| unsynced.file.is_none()) && self.others_left_much_unwritten();
        let (whole, each): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|unsynced| unsynced.file.is_none() && !each);
        let mut failed: HashMap<u64, Option<i32>> = HashMap::new();
        for Unsynced { device, .. } in &whole {
            failed.entry(*device).or_insert_with(|| self.sync_file_system(*device).err().map(code));
        }
        for unsynced in whole {
            let error = failed[&unsynced.device].map(io::Error::from_raw_os_error);
            good &= self.finish_synced(unsynced, error);
        }
        let mut each = each.into_iter();
        loop {
            let part: Vec<_> = each.by_ref().take(self.open_together()).collect();
            if part.is_empty() {
                break;
            }
            let errors = self.sync_each(&part);
            for (unsynced, error) in part.into_iter().zip(errors) {
                good &= self.finish_synced(unsynced, error);
            }
        }
        good
    }

    /// Returns this worker's share of the files that may be open for their fsync.
    fn open_together(&self) -> usize {
        self.shared.budget.share(self.shared.budget.syncs)
    }

    /// Returns whether a `syncfs` would write much data of other programs.
    fn others_left_much_unwritten(&self) -> bool {
        let ours = self.shared.counters.bytes.load(Ordering::Relaxed);
        sys::memory_figure("Dirty:")
            .is_none_or(|dirty| dirty > ours.saturating_add(FOREIGN_DIRTY_BYTES))
    }

    fn sync_file_system(&self, device: u64) -> io::Result<()> {
        let whole =
            self.file_systems.iter().find_map(|(of, whole)| (*of == device).then_some(whole));
        match whole {
            Some(Some(fd)) => sys::sync_file_system(fd.as_fd()),
            _ => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        }
    }

    /// Syncs each file with its own fsync, all at once; returns the errors.
    fn sync_each(&self, part: &[Unsynced]) -> Vec<Option<io::Error>> {
        let files: Vec<_> = part.iter().map(|unsynced| self.open_again(unsynced)).collect();
        let failed: Vec<Mutex<Option<io::Error>>> = part.iter().map(|_| Mutex::default()).collect();
        fiber::par_for_each(files.iter().zip(&failed), part.len(), |(file, failed)| {
            if let Ok(file) = file
                && let Err(e) = sync_one(file)
            {
                *lock(failed) = Some(e);
            }
        });
        let failed =
            failed.into_iter().map(|e| e.into_inner().unwrap_or_else(PoisonError::into_inner));
        let ends = part.iter().zip(&files).zip(failed);
        ends.map(|((unsynced, file), failed)| match file {
            Ok(_) => failed,
            // For instance, the file may be written but not read.
            Err(_) => self.sync_file_system(unsynced.device).err(),
        })
        .collect()
    }

    /// Returns the file or directory, opened again if it was closed.
    fn open_again(&self, unsynced: &Unsynced) -> io::Result<Arc<OwnedFd>> {
        if let Some(file) = &unsynced.file {
            return Ok(Arc::clone(file));
        }
        if let Some(dir) = &unsynced.directory {
            return dir.fd(Side::Target, &self.shared.open);
        }
        let parent = self.parent_fd(unsynced)?;
        let written = unsynced.rename.as_ref().map_or(&unsynced.name, |rename| &rename.temporary);
        let parent = sys::or_cwd(&parent);
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOFOLLOW;
        sys::open_at(parent, written, flags, 0).map(Arc::new)
    }

    /// Completes an entry after its sync. Returns false if it is not on the disk under its name.
    fn finish_synced(&mut self, mut unsynced: Unsynced, mut error: Option<io::Error>) -> bool {
        if let Some(e) = &error {
            self.reporter().fail_on("error syncing", unsynced.quoted(), e);
        }
        let file = unsynced.file.take().filter(|_| unsynced.directory.is_none());
        if let Some(Err(e)) = file.and_then(Arc::into_inner).map(sys::close)
            && error.is_none()
        {
            self.reporter().fail_on("failed to close", unsynced.quoted(), &e);
            error = Some(e);
        }
        if error.is_some()
            && unsynced.rename.is_none()
            && unsynced.directory.is_none()
            && let Ok(parent) = self.parent_fd(&unsynced)
        {
            self.forget_times(sys::or_cwd(&parent), &unsynced.name);
        }
        if let Some(rename) = &unsynced.rename {
            unsynced.recorded = self.before_naming(&unsynced, rename);
            let named = self.rename_or_remove(&unsynced, rename, error.is_some());
            if let Err(e) = named {
                self.reporter().fail_on("cannot create regular file", unsynced.quoted(), &e);
                error = Some(e);
            }
        }
        if error.is_some()
            && let Some(backup) = &unsynced.backup
            && let Err(e) = self.restore_backup(&unsynced, backup)
        {
            self.reporter().fail_on("cannot un-backup", unsynced.quoted(), &e);
        }
        if error.is_none()
            && let Some(recorded) = unsynced.recorded
        {
            self.record_synced(&unsynced, recorded);
        }
        // On the command line, the name still belongs to the old file.
        self.made_top &= error.is_none();
        if let Some(dir) = unsynced.dir {
            self.part_done(dir);
        }
        error.is_none()
    }

    /// Records a file that is on the disk under its name.
    fn record_synced(&mut self, unsynced: &Unsynced, recorded: Recorded) {
        let Ok(parent) = self.parent_fd(unsynced) else { return };
        let fd = sys::or_cwd(&parent);
        let follow = unsynced.rename.is_none();
        if let Some(recorded) = self.record_at((fd, &unsynced.name), recorded, follow) {
            self.recorded = Some(recorded);
        }
    }

    /// Completes the description of a file that gets its name next.
    fn before_naming(&self, unsynced: &Unsynced, rename: &Rename) -> Option<Recorded> {
        let recorded = Some(unsynced.recorded?);
        let parent = self.parent_fd(unsynced).ok()?;
        let fd = sys::or_cwd(&parent);
        self.before_rename((fd, &rename.temporary), recorded)
    }

    /// Returns the open directory of the entry; `None` for a name of the command line.
    fn parent_fd(&self, unsynced: &Unsynced) -> io::Result<Option<Arc<OwnedFd>>> {
        let dir = unsynced.dir.as_ref();
        dir.map(|dir| dir.fd(Side::Target, &self.shared.open)).transpose()
    }

    /// Renames the backup to its original name.
    fn restore_backup(&self, unsynced: &Unsynced, backup: &CStr) -> io::Result<()> {
        let parent = self.parent_fd(unsynced)?;
        let fd = sys::or_cwd(&parent);
        sys::rename_new((fd, backup), (fd, &unsynced.name))
    }

    /// Gives the file its name, or removes it.
    fn rename_or_remove(
        &self,
        unsynced: &Unsynced,
        rename: &Rename,
        remove: bool,
    ) -> io::Result<()> {
        let parent = self.parent_fd(unsynced)?;
        let fd = sys::or_cwd(&parent);
        if remove {
            rename.remove(fd, self.reporter());
            return Ok(());
        }
        rename_into_place(fd, rename, self.reporter())
    }
}

/// Renames the temporary file to its final name; removes it if that fails.
pub(crate) fn rename_into_place(
    dir: BorrowedFd<'_>,
    rename: &Rename,
    reporter: &Reporter,
) -> io::Result<()> {
    let (from, to) = ((dir, &*rename.temporary), (dir, &*rename.name));
    let named =
        if rename.keep_existing { sys::rename_new(from, to) } else { sys::rename_at(from, to) };
    if named.is_err() {
        rename.remove(dir, reporter);
    }
    named
}

/// Syncs the file system of the source, through the directory that holds it.
fn sync_file_system_of_source(item: &Item<'_>, device: u64) -> io::Result<()> {
    let parent = match item.dir {
        Some(_) => c".".to_owned(),
        None => sys::c_string(directory_of(item.source.to_bytes())),
    };
    let dir = sys::open_at(item.source_dir, &parent, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    if sys::stat_of(dir.as_fd())?.st_dev != device {
        return Err(io::Error::from_raw_os_error(libc::EACCES));
    }
    sys::sync_file_system(dir.as_fd())
}

/// Syncs the directory of a file that was created through a link.
pub(crate) fn sync_directory_of(file: &OwnedFd) -> io::Result<()> {
    let path = sys::read_link_at(sys::CWD, &sys::proc_path(file.as_fd()))?;
    let parent = sys::c_string(directory_of(path.to_bytes()));
    let dir = sys::open_at(sys::CWD, &parent, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    sys::sync_fd(dir.as_fd())
}

fn code(error: io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

fn sync_one(file: &OwnedFd) -> io::Result<()> {
    // The library's `File` owns its descriptor; this one stays the caller's.
    let file = std::mem::ManuallyDrop::new(borrowed(file));
    file.sync_all().map_err(|e| match e.raw_os_error() {
        // A directory that cannot be read is open for lookups only.
        Some(libc::EBADF) => io::Error::from_raw_os_error(libc::EACCES),
        _ => e,
    })
}

/// Returns a `File` for the descriptor, which the caller must not drop.
fn borrowed(file: &OwnedFd) -> cringle::fs::File {
    use std::os::fd::{AsRawFd, FromRawFd};
    // SAFETY: the descriptor is open while `file` is borrowed, and the caller keeps the `File` in a
    // `ManuallyDrop` that ends before that borrow: the `OwnedFd` remains the only owner that closes
    // it.
    unsafe { cringle::fs::File::from_raw_fd(file.as_raw_fd()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::workers::Shared;

    /// The directory that a worker finished last still waits for its sync.
    #[test]
    fn a_worker_syncs_before_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name| sys::c_string(directory.path().join(name).as_os_str().as_bytes());
        let (temporary, name) = (at("temporary"), at("name"));
        let file = std::fs::File::create(directory.path().join("temporary")).unwrap();
        let shared = Shared::new(Options::new().fsync(true));
        cringle::run(|| {
            let mut worker = Worker::new(&shared, 0);
            let item = Item::of_command_line(&name, &name);
            let rename =
                Rename { temporary: temporary.clone(), name: name.clone(), keep_existing: true };
            assert!(worker.sync_file_later(file.into(), &item, Some(rename), (false, None)));
            shared.finish();
            worker.help();
        });
        assert!(directory.path().join("name").exists());
    }
}
