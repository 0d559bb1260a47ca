//! Opens the file that the data of one target are written to: a new file, a file beside an existing
//! target, or the existing target.

use crate::attributes;
use crate::file_locks::{self, NewFileLock, WriteLock};
use crate::fsync::{Rename, sync_directory_of};
use crate::replace::is_append_only_dir;
use crate::sys::{self, Stat};
use crate::tree::{Item, Side};
use crate::workers::Worker;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The open file, and what remains to be done with it.
pub(crate) struct Destination {
    pub(crate) file: OwnedFd,
    pub(crate) rename: Option<Rename>,
    pub(crate) made: bool,
    pub(crate) exclusion: Exclusion,
}

/// What keeps other workers from writing to the target at the same time.
pub(crate) enum Exclusion {
    /// An existing file, written in place.
    Existing(#[expect(dead_code, reason = "held until it is dropped")] WriteLock),
    /// A new file.
    New(#[expect(dead_code, reason = "held until it is dropped")] NewFileLock),
    /// No other worker can find the file, or several may write to it.
    None,
}

impl Worker<'_> {
    /// Removes a target that will not be completed, if this copy has made it.
    pub(crate) fn discard(&self, item: &Item<'_>, destination: Destination) {
        if let Some(rename) = &destination.rename {
            rename.remove(item.target_dir, self.reporter());
        } else if destination.made {
            // Another process may have replaced the file: then it is not ours to remove.
            let existing = sys::stat_at(item.target_dir, item.target, false);
            if !sys::same(existing, sys::stat_of(&destination.file)) {
                return;
            }
            if let Err(e) = sys::unlink_at(item.target_dir, item.target) {
                self.reporter().fail_on("cannot remove", item.quoted(Side::Target), &e);
            }
        } else if self.shared.stopped() {
            self.reporter().fail(&format!("{} is incomplete", item.quoted(Side::Target)));
        }
    }

    /// Creates the target; returns `None` if `likely` turns out to be wrong.
    pub(crate) fn make_new(
        &self,
        item: &Item<'_>,
        stat: &Stat,
        likely: bool,
    ) -> Result<Option<Destination>, ()> {
        let options = &self.shared.options;
        let mode = attributes::first_mode(options, stat);
        let access = if options.verify { libc::O_RDWR } else { libc::O_WRONLY };
        let mut flags = access | libc::O_CREAT | libc::O_EXCL;
        if mode & 0o200 == 0 && options.verify {
            flags |= libc::O_NONBLOCK;
        }
        // Under a temporary name the link would be found only at the end; otherwise the open finds
        // it.
        let names_late = self.shared.names_late();
        if names_late && !likely && is_link(item) {
            return self.open_through_dangling_link(item, mode);
        }
        let open = |name: &CStr| sys::open_at(item.target_dir, name, flags, mode);
        let lock = self.shared.file_locks.new_file(self.index);
        let is_dir_name = item.target.to_bytes().ends_with(b"/");
        let opened = if names_late && !is_dir_name && !is_append_only_dir(item) {
            self.shared.temporaries.make(item.target, open).map(|(file, temporary)| {
                let name = item.target.to_owned();
                (file, Some(Rename { temporary, name, keep_existing: true }))
            })
        } else {
            open(item.target).map(|file| (file, None))
        };
        match opened {
            Ok((file, rename)) => {
                lock.opened(file.as_raw_fd());
                let exclusion = Exclusion::New(lock);
                Ok(Some(Destination { file, rename, made: true, exclusion }))
            }
            // The general way finds the reason and reports it.
            Err(_) if likely => Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) && is_link(item) => {
                drop(lock);
                self.open_through_dangling_link(item, mode)
            }
            Err(e) => {
                let not_dir = e.raw_os_error() == Some(libc::EISDIR) && is_dir_name;
                let e = if not_dir { io::Error::from_raw_os_error(libc::ENOTDIR) } else { e };
                self.cannot_create(item, &e);
                Err(())
            }
        }
    }

    /// A dangling link is written through only under `POSIXLY_CORRECT`.
    fn open_through_dangling_link(
        &self,
        item: &Item<'_>,
        mode: u32,
    ) -> Result<Option<Destination>, ()> {
        if !self.shared.options.posix {
            self.reporter().fail(&format!(
                "not writing through dangling symlink {}",
                item.quoted(Side::Target)
            ));
            return Err(());
        }
        let access = if self.shared.options.verify { libc::O_RDWR } else { libc::O_WRONLY };
        // Another process may have created the file to which the link leads.
        let opened = sys::open_at(item.target_dir, item.target, access | libc::O_CREAT, mode);
        let opened = opened.and_then(|file| {
            if self.shared.options.fsync {
                sync_directory_of(&file)?;
            }
            Ok((self.lock_and_truncate(&file)?, file))
        });
        match opened {
            Ok((exclusion, file)) => {
                Ok(Some(Destination { file, rename: None, made: true, exclusion }))
            }
            Err(e) => {
                self.cannot_create(item, &e);
                Err(())
            }
        }
    }

    /// Locks an existing file and truncates it. As with `O_TRUNC`, special files have no length.
    fn lock_and_truncate(&self, file: &OwnedFd) -> io::Result<Exclusion> {
        let stat = sys::stat_of(file.as_fd())?;
        match sys::kind(&stat) {
            libc::S_IFREG => {
                let turn = self.shared.file_locks.write(self.index, self.source, sys::id(&stat));
                sys::truncate(file.as_fd(), 0)?;
                Ok(Exclusion::Existing(turn))
            }
            libc::S_IFBLK => {
                let device = file_locks::device_id(stat.st_rdev);
                Ok(Exclusion::Existing(self.shared.file_locks.write(
                    self.index,
                    self.source,
                    device,
                )))
            }
            _ => Ok(Exclusion::None),
        }
    }

    /// Opens an existing target, or a new file beside it that will replace it.
    pub(crate) fn open_existing(
        &self,
        item: &Item<'_>,
        stat: &Stat,
        beside: bool,
    ) -> Result<Option<Destination>, ()> {
        if self.is_own_file
            && let Some(destination) = self.make_anew(item, stat, beside)?
        {
            return Ok(Some(destination));
        }
        let options = &self.shared.options;
        let access =
            if options.verify && is_read_back(item) { libc::O_RDWR } else { libc::O_WRONLY };
        let file = match sys::open_at(item.target_dir, item.target, access, 0) {
            Ok(file) => file,
            Err(_) if options.force || self.is_own_copy => {
                if let Err(e) = sys::unlink_at(item.target_dir, item.target) {
                    self.reporter().fail_on("cannot remove", item.quoted(Side::Target), &e);
                    return Err(());
                }
                if options.verbose {
                    self.reporter().print(&format!("removed {}", item.quoted(Side::Target)));
                }
                return self.make_new(item, stat, false);
            }
            Err(e) => {
                self.cannot_create(item, &e);
                return Err(());
            }
        };
        if let Some(what) = sys::stat_of(&file).ok().and_then(|stat| self.own_file(&stat)) {
            let name = item.quoted(Side::Target);
            self.reporter().fail(&format!("{name} is {what}; it is not replaced"));
            return Err(());
        }
        if options.attributes_only {
            let exclusion = Exclusion::None;
            return Ok(Some(Destination { file, rename: None, made: false, exclusion }));
        }
        if beside && let Some(destination) = self.make_replacement(item, &file) {
            return Ok(Some(destination));
        }
        match self.lock_and_truncate(&file) {
            Ok(exclusion) => Ok(Some(Destination { file, rename: None, made: false, exclusion })),
            Err(e) => {
                self.cannot_create(item, &e);
                Err(())
            }
        }
    }

    /// Creates the file that will replace one that an earlier run of this copy has created. Unlike
    /// the replacement of a user's file, it has nothing of the old one: neither mode, attributes
    /// nor owner. Unless `beside`, the old file is removed first: the disk has no room for both.
    /// `None` if no temporary name can be used.
    fn make_anew(
        &self,
        item: &Item<'_>,
        stat: &Stat,
        beside: bool,
    ) -> Result<Option<Destination>, ()> {
        if is_link(item)
            || is_append_only_dir(item)
            || sys::is_mount_root(item.target_dir, item.target)
        {
            return Ok(None);
        }
        if !beside && sys::unlink_at(item.target_dir, item.target).is_ok() {
            return self.make_new(item, stat, false);
        }
        let mut destination = self.make_new(item, stat, true)?;
        if let Some(rename) = destination.as_mut().and_then(|made| made.rename.as_mut()) {
            rename.keep_existing = false;
        }
        Ok(destination)
    }

    fn cannot_create(&self, item: &Item<'_>, error: &io::Error) {
        self.reporter().fail_on("cannot create regular file", item.quoted(Side::Target), error);
    }
}

/// Returns whether `--verify` reads the target. A pipe is not opened for reading: its reader gets
/// the bytes.
fn is_read_back(item: &Item<'_>) -> bool {
    sys::stat_at(item.target_dir, item.target, true)
        .is_ok_and(|existing| matches!(sys::kind(&existing), libc::S_IFREG | libc::S_IFBLK))
}

fn is_link(item: &Item<'_>) -> bool {
    sys::stat_at(item.target_dir, item.target, false)
        .is_ok_and(|existing| sys::kind(&existing) == libc::S_IFLNK)
}
