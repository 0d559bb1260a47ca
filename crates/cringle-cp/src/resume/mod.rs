//! `--resume MANIFEST`: what an interrupted copy has completed is not copied again.
//!
//! The manifest is a [`Log`], whose records have checksums; a torn end is cut. It records the
//! command line, each name before it is created (see [`own`]), and each regular file after its
//! data, its attributes and its name are complete. With `--fsync`, a file is recorded after its
//! sync.
//!
//! A recorded file is *whole* if source and target still have the fingerprints that they had (see
//! [`fingerprint`]): sizes, times, modes, owners. Wherever a fingerprint cannot prove that, the
//! contents are compared, or the file is copied again. So a record that is missing costs time, and
//! no record claims too much:
//!
//! | event | effect |
//! |---|---|
//! | the source changed | its time of last status change (ctime) differs: it is copied again |
//! | …, and the copy had created the target | a new file replaces it, with nothing of the old one |
//! | it changed within the granularity of that time | the record says so: contents are compared |
//! | its file system stores no such time, or another computer changes it | the same |
//! | a directory above it was renamed, and another file with equal times is there | its inode differs: contents are compared |
//! | the run has another user, group or capability | contents are compared, and attributes set again |
//! | the target changed | its ctime differs: contents are compared |
//! | the machine crashed, or the target was mounted anew | without `--fsync`, the fingerprint differs: it has the numbers of the boot and the mount |
//! | the file was complete, but not recorded yet | it is copied again |
//! | the target changed while it was compared, or before its record | it is copied again, or not recorded |
//! | another name of the file was linked | the file is recorded again |
//!
//! New files have temporary names until they are complete, also without `--fsync`. These names
//! contain a number of the manifest, by which the next run finds and removes what is left of them.
//! So a file under its name is complete, except one that is written in place.
//!
//! The result must not depend on interrupts, but a directory that exists is treated differently
//! from one that the copy creates. So names are recorded *before* they are created, and the mode
//! that a directory gets at the end before another one is set. Options that let the result depend
//! on existing targets (`--backup`, `-u`, `-n`, `-i`) are refused.
//!
//! The source may get another type between two runs. A link or special file that an earlier run has
//! created is removed then: a file's bytes would be written through it. A directory is not.
//!
//! If the manifest cannot be written, the copy stops.

mod fingerprint;
mod manifest;
mod own;
mod place;
mod whole;

use crate::messages::{quote, reason};
use crate::plan::{Copy, Usage, plan};
use crate::request::Request;
use crate::results;
use crate::sys::{self, Statx};
use crate::workers::{Shared, lock};
use cringle::block::Log;
use fingerprint::Keys;
use manifest::{Contents, FileEntry, Header, Kind};
use std::collections::HashMap;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

pub(crate) use fingerprint::{Content, Recorded};

/// How long a finished file may wait until its record is written.
const INTERVAL: Duration = Duration::from_millis(500);
/// The number of finished files that one record has at most.
const FILES_PER_RECORD: usize = 4096;

/// The manifest of a copy.
pub(crate) struct Resume {
    log: Log,
    path: OsString,
    /// The manifest itself is neither copied nor overwritten.
    id: (u64, u64),
    keys: Keys,
    /// The manifest has records of an earlier run.
    has_earlier: bool,
    earlier: HashMap<u128, FileEntry>,
    /// What this copy creates or has created: see [`announce`](Resume::announce).
    made: Mutex<HashMap<u128, Kind>>,
    final_modes: HashMap<u128, u32>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// The finished files that are not recorded yet.
#[derive(Default)]
struct Waiting {
    files: Vec<FileEntry>,
    is_over: bool,
}

/// Opens the manifest that the request names, if any. Returns it with the copies to make: those of
/// the first run, because the targets that it has created change how names are understood.
pub(crate) fn open(request: &Request) -> Result<(Option<Resume>, Vec<Copy>), Usage> {
    let Some(path) = &request.options.resume else { return Ok((None, plan(request)?)) };
    manifest::check_options(request)?;
    if std::fs::metadata(path).is_err() {
        // A refused manifest is not created.
        let copies = plan(request)?;
        place::check(path, request, &copies)?;
        results::check(request, &copies)?;
    }
    let mut contents = Contents::default();
    let log =
        Log::open(path, |_, record| contents.take(record)).map_err(|e| cannot_use(path, &e))?;
    let (header, copies) = match contents.header.take() {
        Some(header) => {
            header.check(&Header::of(request, Vec::new())?, path)?;
            let copies = header.copies();
            (header, copies)
        }
        None => (Header::of(request, plan(request)?)?, plan(request)?),
    };
    let id = place::check(path, request, &copies)?;
    results::check(request, &copies)?;
    if !contents.has_header {
        for record in header.encode() {
            log.append(&record).map_err(|e| cannot_use(path, &e))?;
        }
    }
    let resume = Resume {
        log,
        path: path.clone(),
        id,
        keys: Keys::new(header.number, request.options.fsync),
        has_earlier: contents.has_header,
        earlier: contents.files,
        made: Mutex::new(contents.names),
        final_modes: contents.final_modes,
        waiting: Mutex::default(),
        changed: Condvar::new(),
    };
    if resume.has_earlier {
        resume.remove_leftovers_beside(&request.options.reporter, &copies);
    }
    Ok((Some(resume), copies))
}

fn cannot_use(path: &OsStr, error: &io::Error) -> Usage {
    let name = quote(path);
    Usage::plain(match error.kind() {
        io::ErrorKind::ResourceBusy => {
            format!("manifest {name} is in use by another copy; wait for its end")
        }
        io::ErrorKind::InvalidData => {
            format!("{name} is no intact manifest: {}; name another file", reason(error))
        }
        _ => format!("cannot use manifest {name}: {}", reason(error)),
    })
}

impl Resume {
    pub(crate) fn id(&self) -> (u64, u64) {
        self.id
    }

    /// Returns the numbers that the names of temporary files contain: of the manifest and the run.
    pub(crate) fn numbers(&self) -> (u64, u32) {
        (self.keys.number, self.keys.run as u32)
    }

    pub(crate) fn has_earlier(&self) -> bool {
        self.has_earlier
    }

    /// Records names with their types, durably, before they are created. Regular files in a
    /// directory that the copy creates need no record: nothing in it is the user's.
    pub(crate) fn announce(&self, shared: &Shared, names: &[(u128, Kind)]) -> bool {
        let new: Vec<_> = {
            let made = lock(&self.made);
            names.iter().copied().filter(|(key, kind)| made.get(key) != Some(kind)).collect()
        };
        if new.is_empty() {
            return true;
        }
        let appended = self.log.append(&manifest::names_to_create(&new));
        lock(&self.made).extend(new);
        self.is_written(shared, appended.map(drop))
    }

    /// Returns whether this copy has created a file of this type (`S_IFREG` and others) under the
    /// name, in an earlier run or in this one.
    pub(crate) fn has_made(&self, name: u128, file_type: u32) -> bool {
        lock(&self.made).get(&name) == Some(&kind_of(file_type))
    }

    /// Returns the mode that an earlier run wanted to set at the end.
    pub(crate) fn final_mode(&self, directory: u128) -> Option<u32> {
        self.final_modes.get(&directory).copied()
    }

    /// Records the mode, durably, before another one is set.
    pub(crate) fn keep_final_mode(&self, shared: &Shared, directory: u128, mode: u32) -> bool {
        if self.final_mode(directory) == Some(mode) {
            return true;
        }
        let appended = self.log.append(&manifest::final_mode(directory, mode));
        self.is_written(shared, appended.map(drop))
    }

    /// Queues the record of a complete file.
    pub(crate) fn push(&self, shared: &Shared, recorded: Recorded, target: &Statx) {
        let Some(entry) = self.keys.entry(recorded, target) else { return };
        let mut waiting = lock(&self.waiting);
        waiting.files.push(entry);
        // Usually the thread has taken them before; without it they are written here.
        if waiting.files.len() >= 4 * FILES_PER_RECORD {
            let files = std::mem::take(&mut waiting.files);
            drop(waiting);
            self.write(shared, &files);
        }
    }

    /// Calls `copy` while a thread writes the records of finished files; writes the last ones at
    /// the end.
    pub(crate) fn while_recording<R>(&self, shared: &Shared, copy: impl FnOnce() -> R) -> R {
        let result = thread::scope(|scope| {
            let recorder = thread::Builder::new().name("manifest".into());
            // Without the thread, records are written later.
            let _ = recorder.spawn_scoped(scope, || self.record_until_over(shared));
            let result = copy();
            lock(&self.waiting).is_over = true;
            self.changed.notify_all();
            result
        });
        let rest = std::mem::take(&mut lock(&self.waiting).files);
        self.write(shared, &rest);
        result
    }

    fn record_until_over(&self, shared: &Shared) {
        let mut waiting = lock(&self.waiting);
        while !waiting.is_over {
            let wait = |waiting: &mut Waiting| !waiting.is_over;
            let woken = self.changed.wait_timeout_while(waiting, INTERVAL, wait);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
            let files = std::mem::take(&mut waiting.files);
            drop(waiting);
            self.write(shared, &files);
            waiting = lock(&self.waiting);
        }
    }

    fn write(&self, shared: &Shared, files: &[FileEntry]) {
        for part in files.chunks(FILES_PER_RECORD) {
            let appended = self.log.append(&manifest::files(part));
            if !self.is_written(shared, appended.map(drop)) {
                return;
            }
        }
    }

    /// Stops the copy if the manifest cannot be written: it could not be resumed where it is.
    fn is_written(&self, shared: &Shared, result: io::Result<()>) -> bool {
        let Err(e) = &result else { return true };
        if !shared.stop.fail() {
            let name = quote(&self.path);
            // The log's error, whose source is that of the call.
            let cause = e.source().and_then(|source| source.downcast_ref()).unwrap_or(e);
            let text = format!("cannot write manifest {name}: {}; the copy stops", reason(cause));
            shared.options.reporter.fail(&text);
        }
        false
    }
}

/// Returns a file type of a status as directories give it.
fn kind_of(file_type: u32) -> Kind {
    (file_type >> 12) as Kind
}

/// Returns the status of the target, through a link if `follow`.
pub(crate) fn look(
    dir: std::os::fd::BorrowedFd<'_>,
    name: &std::ffi::CStr,
    follow: bool,
) -> Option<Statx> {
    sys::statx_at(dir, name, follow).ok()
}
