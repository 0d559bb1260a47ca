//! Preserves hard links: records the copy of each source that has several names.
//!
//! The first worker that finds such a file copies it; other workers that find it wait for the copy,
//! then link to it. A worker that copies such a file does not wait for another one, so there is no
//! deadlock. After a failed copy the next worker copies.

use crate::resume::Recorded;
use crate::tree::Dir;
use crate::workers::lock;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

type Id = (u64, u64);

/// The name of a copy, in a directory of the tree or as given on the command line.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) dir: Option<Arc<Dir>>,
    pub(crate) name: CString,
    /// The source of the copy, as it was then.
    pub(crate) recorded: Option<Recorded>,
}

enum Status {
    Copying,
    Copied(Made),
}

/// The copies of files with several names.
#[derive(Default)]
pub(crate) struct Links {
    files: Mutex<HashMap<Id, Status>>,
    /// By target: the source whose copy of an earlier run was kept.
    kept: Mutex<HashMap<(u32, u32, u64), Id>>,
    changed: Condvar,
}

impl Links {
    /// Returns the name to link to. `None`: the caller copies the file and then calls
    /// [`done`](Links::done).
    pub(crate) fn begin(&self, id: Id) -> Option<Made> {
        let mut files = lock(&self.files);
        loop {
            match files.get(&id) {
                Some(Status::Copied(made)) => return Some(made.clone()),
                Some(Status::Copying) => {
                    files = self.changed.wait(files).unwrap_or_else(PoisonError::into_inner);
                }
                None => {
                    files.insert(id, Status::Copying);
                    return None;
                }
            }
        }
    }

    /// Keeps this target of an earlier run as the copy of `source`. Returns false if it was kept as
    /// the copy of another source.
    pub(crate) fn keep(&self, target: (u32, u32, u64), source: Id) -> bool {
        *lock(&self.kept).entry(target).or_insert(source) == source
    }

    /// Records the copy, or its failure, and wakes the workers that wait for it.
    pub(crate) fn done(&self, id: Id, made: Option<Made>) {
        let mut files = lock(&self.files);
        match made {
            Some(made) => files.insert(id, Status::Copied(made)),
            None => files.remove(&id),
        };
        self.changed.notify_all();
    }
}
