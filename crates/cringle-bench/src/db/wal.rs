//! The write-ahead log of `--durable`, and the recovery that replays it.
//!
//! A record has the key and the new value of a row. It is enqueued while the page is changed, so
//! that the records of a row are in the order of its changes, and a replay may be repeated. A
//! transaction ends when its record is durable; a page is written back after the records of its
//! changes are.

use super::Job;
use cringle::block::Log;
use std::collections::HashMap;
use std::io;

/// A log, or nothing without `--durable`.
pub(super) struct Wal(Option<Log>);

/// A change without a record, which need not be waited for.
pub(super) const NO_RECORD: u64 = 0;

impl Wal {
    /// Begins an empty log.
    pub(super) fn begin(job: &Job) -> io::Result<Wal> {
        if !job.durable {
            return Ok(Wal(None));
        }
        let file = job.store.log();
        file.0.set_len(0)?;
        Log::open(file.own_name(), |_, _| Ok(())).map(|log| Wal(Some(log)))
    }

    /// Adds a record, and returns the number to wait for.
    #[inline]
    pub(super) fn record(&self, key: u64, value: u64) -> io::Result<u64> {
        let Some(log) = &self.0 else { return Ok(NO_RECORD) };
        let mut record = [0; 16];
        record[..8].copy_from_slice(&key.to_le_bytes());
        record[8..].copy_from_slice(&value.to_le_bytes());
        log.enqueue(&record)
    }

    /// Waits until the record is durable.
    #[inline]
    pub(super) fn wait(&self, record: u64) -> io::Result<()> {
        match &self.0 {
            Some(log) if record != NO_RECORD => log.wait_durable(record),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
impl Wal {
    /// The end of what is durable.
    pub(super) fn end(&self) -> u64 {
        self.0.as_ref().map_or(0, Log::end)
    }
}

/// Does what a start after a crash does: replays the log on the tree in the file. What was only in
/// the pool is lost.
pub(super) fn recover(job: &Job) -> io::Result<()> {
    let mut values = HashMap::new();
    let replay = |_offset, record: &[u8]| {
        let (key, value) = record.split_at_checked(8).ok_or(io::ErrorKind::InvalidData)?;
        values.insert(crate::content::head(key), crate::content::head(value));
        Ok(())
    };
    Log::open(job.store.log().own_name(), replay)?;
    job.store.set_values(&job.tree, &values)
}
