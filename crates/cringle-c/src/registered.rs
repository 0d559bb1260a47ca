//! What is registered with an engine, and how a submission keeps it.
//!
//! A submission keeps what is registered when it is accepted, by one reference to the tables.
//! (Refused: a lookup when an operation begins, which would fail operations whose file was
//! unregistered meanwhile; and a reference for each file of a submission, which would cost an
//! allocation, and a look at each operation by the caller of `cringle_submit_cb`.)

use crate::registry::Registry;
use cringle::fs::File;
use std::sync::{Arc, PoisonError, RwLock};

/// What is registered with an engine.
#[derive(Debug, Default)]
pub(crate) struct Registered {
    current: RwLock<Arc<Tables>>,
}

/// What was registered when a submission was accepted. It keeps that until it has ended, whatever
/// is unregistered meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    pub(crate) files: Registry<Arc<File>>,
    pub(crate) buffers: Registry<Range>,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) base: usize,
    pub(crate) len: u64,
}

impl Registered {
    /// Returns what is registered now.
    pub(crate) fn tables(&self) -> Arc<Tables> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes what is registered for later submissions, or nothing if `change` fails.
    pub(crate) fn change<R, E>(
        &self,
        change: impl FnOnce(&mut Tables) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let mut tables = Tables::clone(&current);
        let changed = change(&mut tables)?;
        let before = std::mem::replace(&mut *current, Arc::new(tables));
        drop(current);
        // Closes files that no submission keeps, which may take time: without the lock.
        drop(before);
        Ok(changed)
    }
}

impl Tables {
    /// Whether the range is part of a registered buffer.
    pub(crate) fn contains(&self, buffer: i32, address: usize, len: u64) -> bool {
        let Some(range) = self.buffers.get(buffer) else { return false };
        let before = address.checked_sub(range.base);
        before.is_some_and(|before| len <= range.len.saturating_sub(before as u64))
    }
}
