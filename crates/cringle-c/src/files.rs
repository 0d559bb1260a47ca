//! The files of a submission: those that are registered, and those that the caller lends by number.

use crate::abi::{CRINGLE_OP_REGISTERED_FILE, cringle_op};
use crate::registry::Registry;
use cringle::fs::File;
use std::collections::HashMap;
use std::ops::Deref;
use std::os::fd::{FromRawFd, IntoRawFd, RawFd};
use std::sync::Arc;

/// A descriptor of the caller, which is used for one submission and not closed.
#[derive(Debug)]
pub(crate) struct Lent(Option<File>);

impl Lent {
    /// `None` for a negative number. One that is not open is refused by the kernel, at each use.
    fn new(fd: RawFd) -> Option<Lent> {
        // SAFETY: the contract of `from_raw_fd` is ownership, of which the value makes no use: it
        // never closes the descriptor. The kernel checks the number.
        (fd >= 0).then(|| Lent(Some(unsafe { File::from_raw_fd(fd) })))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let _still_open = self.0.take().map(IntoRawFd::into_raw_fd);
    }
}

#[derive(Debug)]
enum FileRef {
    Lent(Lent),
    Registered(Arc<File>),
}

impl Deref for FileRef {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            FileRef::Lent(lent) => lent.0.as_ref().expect("taken by `drop` alone"),
            FileRef::Registered(file) => file,
        }
    }
}

/// The number of files up to which a search by one after the other is the fastest.
const FEW: usize = 16;

/// Each file of a submission once, so that its properties are looked up once.
#[derive(Debug, Default)]
pub(crate) struct Files {
    files: Vec<(Key, Option<FileRef>)>,
    /// The indexes, if there are more than a few files.
    indexes: HashMap<Key, usize>,
}

/// What names a file in an operation: `fd`, and whether it is a registered one.
type Key = (i32, bool);

#[inline]
fn key_of(op: &cringle_op) -> Key {
    (op.fd, op.flags & CRINGLE_OP_REGISTERED_FILE != 0)
}

impl Files {
    /// Returns the files of these operations.
    pub(crate) fn of(ops: &[cringle_op], registered: &Registry<Arc<File>>) -> Files {
        Files::default().replaced(ops, registered)
    }

    /// Returns the files of these operations, in the memory of others.
    pub(crate) fn replaced(self, ops: &[cringle_op], registered: &Registry<Arc<File>>) -> Files {
        let mut files = self.cleared();
        let mut last = None;
        for op in ops {
            let key = key_of(op);
            if last.replace(key) != Some(key) && files.index(key).is_none() {
                files.add(key, registered);
            }
        }
        files
    }

    /// Releases the files, and keeps the memory.
    pub(crate) fn cleared(mut self) -> Files {
        self.files.clear();
        self.indexes.clear();
        self
    }

    fn add(&mut self, key: Key, registered: &Registry<Arc<File>>) {
        let (number, is_registered) = key;
        let file = if is_registered {
            registered.get(number).cloned().map(FileRef::Registered)
        } else {
            Lent::new(number).map(FileRef::Lent)
        };
        self.files.push((key, file));
        match self.files.len() {
            0..=FEW => {}
            len if self.indexes.is_empty() => {
                self.indexes = self.files.iter().map(|&(key, _)| key).zip(0..len).collect();
            }
            len => drop(self.indexes.insert(key, len - 1)),
        }
    }

    fn index(&self, key: Key) -> Option<usize> {
        if self.indexes.is_empty() {
            return self.files.iter().position(|&(other, _)| other == key);
        }
        self.indexes.get(&key).copied()
    }

    /// Returns the file of an operation; `None` if its number names none.
    pub(crate) fn get(&self, op: &cringle_op) -> Option<&File> {
        self.files[self.index(key_of(op))?].1.as_deref()
    }
}

/// The file of the last operation, which is usually that of the next.
#[derive(Debug)]
pub(crate) struct Found<'f> {
    files: &'f Files,
    last: Option<(Key, &'f File)>,
}

impl<'f> Found<'f> {
    pub(crate) fn new(files: &'f Files) -> Found<'f> {
        Found { files, last: None }
    }

    /// As [`Files::get`].
    #[inline]
    pub(crate) fn get(&mut self, op: &cringle_op) -> Option<&'f File> {
        match self.last {
            Some((key, file)) if key == key_of(op) => Some(file),
            _ => self.find(op),
        }
    }

    #[inline(never)]
    fn find(&mut self, op: &cringle_op) -> Option<&'f File> {
        let file = self.files.get(op)?;
        self.last = Some((key_of(op), file));
        Some(file)
    }
}
