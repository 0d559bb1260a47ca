//! Hard links kept: which file of the source became which name.
//!
//! The first worker that meets a file with several names copies it; another that meets it meanwhile
//! waits until that is done, then links. Nobody waits who has one of these in hand, so nobody waits for
//! ever; a copy that failed lets the next one try.

use crate::tree::Dir;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

type Id = (u64, u64);

/// A name that was made: in this directory, or as it is said on the command line.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) dir: Option<Arc<Dir>>,
    pub(crate) name: CString,
}

enum State {
    Busy,
    Made(Made),
}

#[derive(Default)]
pub(crate) struct Links {
    files: Mutex<HashMap<Id, State>>,
    changed: Condvar,
}

impl Links {
    /// The name to link to; `None`: copy it, then say how that ended with [`done`](Links::done).
    pub(crate) fn begin(&self, id: Id) -> Option<Made> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match files.get(&id) {
                Some(State::Made(made)) => return Some(made.clone()),
                Some(State::Busy) => {
                    files = self.changed.wait(files).unwrap_or_else(PoisonError::into_inner);
                }
                None => {
                    files.insert(id, State::Busy);
                    return None;
                }
            }
        }
    }

    pub(crate) fn done(&self, id: Id, made: Option<Made>) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match made {
            Some(made) => files.insert(id, State::Made(made)),
            None => files.remove(&id),
        };
        self.changed.notify_all();
    }
}
