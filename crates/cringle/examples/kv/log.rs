//! An append-only log whose records are durable in groups: while one group is written and synced,
//! the next one collects.
//!
//! A record is its length, its CRC-32 and its bytes. After a crash the log ends with the last
//! record that is whole.

use cringle::fiber;
use cringle::fs::{File, OpenOptions};
use cringle::sync::{Condvar, Mutex};
use flate2::Crc;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

const HEADER_BYTES: usize = 8;

// ANCHOR: log
pub(crate) struct Log {
    file: File,
    state: Mutex<State>,
    /// Notified when a group is durable.
    committed: Condvar,
}
// ANCHOR_END: log

// ANCHOR: state
#[derive(Default)]
struct State {
    /// Records that are not written yet.
    pending: Vec<u8>,
    /// The length of the log, with `pending`.
    appended: u64,
    /// The length of its durable part.
    durable: u64,
    is_committing: bool,
    /// The error of a write or a sync, after which the end of the file is unknown.
    failed: Option<(io::ErrorKind, String)>,
}
// ANCHOR_END: state

/// The length that the log must have on disk for a record to be durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(u64);

impl Log {
    /// Opens or creates a log, and passes each complete record to `replay`. Truncates the file
    /// after the last one.
    pub(crate) fn open(path: &Path, mut replay: impl FnMut(&[u8])) -> io::Result<Log> {
        let options =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).to_owned();
        let mut file = options.open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let mut rest = bytes.as_slice();
        while let Some(record) = next_record(&mut rest) {
            replay(record);
        }
        let whole = (bytes.len() - rest.len()) as u64;
        file.set_len(whole)?;
        // The file's name must be durable, too: syncing the directory keeps it.
        file.sync_all()?;
        let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
        let state = State { appended: whole, durable: whole, ..State::default() };
        Ok(Log { file, state: Mutex::new(state), committed: Condvar::new() })
    }

    // ANCHOR: append
    /// Appends a record, which is durable once [`wait_durable`](Log::wait_durable) returns for the
    /// position.
    pub(crate) fn append(&self, record: &[u8]) -> io::Result<Position> {
        let mut state = lock(&self.state);
        state.check()?;
        let length = u32::try_from(record.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        state.pending.extend_from_slice(&length.to_le_bytes());
        state.pending.extend_from_slice(&checksum(record).to_le_bytes());
        state.pending.extend_from_slice(record);
        state.appended += (HEADER_BYTES + record.len()) as u64;
        Ok(Position(state.appended))
    }
    // ANCHOR_END: append

    // ANCHOR: wait
    /// Waits until the log is durable up to `position`. The first fiber that finds no commit
    /// running commits all pending records.
    pub(crate) fn wait_durable(&self, position: Position) -> io::Result<()> {
        let mut state = lock(&self.state);
        while state.durable < position.0 {
            state.check()?;
            if state.is_committing {
                state = self.committed.wait(state).expect("no holder of the lock panics");
                continue;
            }
            state.is_committing = true;
            let (group, end) = (std::mem::take(&mut state.pending), state.appended);
            let start = state.durable;
            drop(state);
            // No cancel interrupts the commit: other fibers wait for it.
            let result = fiber::protect(|| {
                self.file.write_all_at(&group, start)?;
                self.file.sync_data()
            });
            state = lock(&self.state);
            state.is_committing = false;
            match result {
                Ok(()) => state.durable = end,
                Err(error) => state.failed = Some((error.kind(), error.to_string())),
            }
            self.committed.notify_all();
        }
        Ok(())
    }
    // ANCHOR_END: wait
}

impl State {
    fn check(&self) -> io::Result<()> {
        match &self.failed {
            None => Ok(()),
            Some((kind, text)) => Err(io::Error::new(*kind, format!("the log failed: {text}"))),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> cringle::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no holder of the lock panics")
}

fn checksum(record: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(record);
    crc.sum()
}

// ANCHOR: next_record
/// Removes the first record from `rest`; `None` at the end, and if the record is torn.
fn next_record<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (header, after) = rest.split_first_chunk::<HEADER_BYTES>()?;
    let [a, b, c, d, sum @ ..] = *header;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    let (record, after) = after.split_at_checked(length)?;
    (checksum(record) == u32::from_le_bytes(sum)).then(|| {
        *rest = after;
        record
    })
}
// ANCHOR_END: next_record
