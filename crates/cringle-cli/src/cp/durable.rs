//! `--fsync`: what was written reaches the disk before it has its name, many files at once.
//!
//! Each sync is a fiber's, so that those of up to 64 files are in the kernel together and the journal
//! commits them in groups: one disk flush for many files instead of one each. A file has a temporary name
//! until then; a directory is synced after what is in it has its names.

use super::engine::Worker;
use super::messages::{complain_of, quote};
use super::sys;
use super::tree::{Dir, Item, Side};
use cringle::fiber;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// In flight together, of one worker.
const TOGETHER: usize = 64;

pub(super) struct Unsynced {
    file: Arc<OwnedFd>,
    /// The directory that waits for it.
    dir: Option<Arc<Dir>>,
    rename: Option<Rename>,
    path: OsString,
}

/// From the temporary name to its own.
pub(super) struct Rename {
    pub(super) temporary: CString,
    pub(super) name: CString,
    pub(super) keep_existing: bool,
}

impl Unsynced {
    pub(super) fn directory(file: Arc<OwnedFd>, dir: &Arc<Dir>) -> Unsynced {
        Unsynced { file, dir: None, rename: None, path: dir.path(Side::Target) }
    }

    pub(super) fn file(file: OwnedFd, item: &Item<'_>, rename: Option<Rename>) -> Unsynced {
        if let Some(dir) = item.dir {
            dir.pending.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        let path = item.path(Side::Target);
        Unsynced { file: Arc::new(file), dir: item.dir.cloned(), rename, path }
    }
}

impl Worker<'_> {
    pub(super) fn sync_later(&mut self, unsynced: Unsynced) {
        self.unsynced.push(unsynced);
        if self.unsynced.len() >= TOGETHER {
            self.sync_all();
        }
    }

    /// Syncs what waits for it. Finishing a directory puts that in the line, too: hence the loop.
    pub(super) fn sync_all(&mut self) {
        while !self.unsynced.is_empty() {
            let all = std::mem::take(&mut self.unsynced);
            let failed: Mutex<Vec<(usize, io::Error)>> = Mutex::default();
            fiber::par_for_each(all.iter().enumerate(), TOGETHER, |(at, unsynced)| {
                if let Err(e) = sync_one(&unsynced.file) {
                    failed.lock().unwrap_or_else(|e| e.into_inner()).push((at, e));
                }
            });
            let mut failed = failed.into_inner().unwrap_or_else(|e| e.into_inner());
            for (at, unsynced) in all.into_iter().enumerate() {
                let error = failed.iter().position(|(which, _)| *which == at);
                let error = error.map(|position| failed.swap_remove(position).1);
                self.synced(unsynced, error);
            }
        }
    }

    fn synced(&mut self, unsynced: Unsynced, error: Option<io::Error>) {
        let Unsynced { dir, rename, path, .. } = unsynced;
        if let Some(e) = &error {
            complain_of(&format!("error syncing {}", quote(&path)), e);
        }
        if let Some(rename) = rename {
            let target = match &dir {
                None => Ok(None),
                Some(dir) => dir.fd(Side::Target, &self.shared.open).map(Some),
            };
            match target {
                Ok(fd) => {
                    let fd = fd.as_ref().map_or(sys::CWD, |fd| fd.as_raw_fd());
                    if error.is_some() {
                        let _ = sys::unlink_at(fd, &rename.temporary);
                    } else {
                        put_in_place(fd, &rename, &path);
                    }
                }
                Err(e) => complain_of(&format!("cannot create regular file {}", quote(&path)), &e),
            }
        }
        if let Some(dir) = dir {
            self.part_done(dir);
        }
    }
}

/// Gives the file its name; if that cannot be, the temporary one goes.
pub(super) fn put_in_place(dir: i32, rename: &Rename, path: &OsString) -> bool {
    let named = sys::rename_at((dir, &rename.temporary), (dir, &rename.name), rename.keep_existing);
    let named = match named {
        // File systems without this flag: nothing was there a moment ago.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) && rename.keep_existing => {
            sys::rename_at((dir, &rename.temporary), (dir, &rename.name), false)
        }
        answer => answer,
    };
    if let Err(e) = &named {
        complain_of(&format!("cannot create regular file {}", quote(path)), e);
        let _ = sys::unlink_at(dir, &rename.temporary);
    }
    named.is_ok()
}

fn sync_one(file: &OwnedFd) -> io::Result<()> {
    // The library's file owns its descriptor: it is given one and asked for it back.
    let file = std::mem::ManuallyDrop::new(borrowed(file));
    file.sync_all()
}

fn borrowed(file: &OwnedFd) -> cringle::fs::File {
    use std::os::fd::FromRawFd;
    // SAFETY: the caller never drops it, so the descriptor has one owner still.
    unsafe { cringle::fs::File::from_raw_fd(file.as_raw_fd()) }
}
