//! The records that wait, and the groups in which they are written.
//!
//! A record belongs to the log from the moment at which it was copied. A cancelled caller leaves it
//! behind, and a leader that is cancelled, or unwinds, leaves its group, which the next leader
//! writes once more, to the same place. A group ends in one of two ways: it is durable, or the log
//! has failed, and then nothing behind the group is ever written.

use super::format::{self, Format, MOST_FILLER_BYTES};
use super::{FairLockGuard, Log};
use cringle_core::cancelled;
use cringle_core::worker::Current;
use cringle_std::fiber;
use cringle_std::internal::RunEnd;
use std::error::Error;
use std::fmt;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The number of yields of a leader while records arrive.
const MOST_YIELDS: usize = 16;

pub(super) struct State {
    /// Records with their frames, which are not written yet.
    pending: Vec<u8>,
    /// The offset of the pending records: the end of the group before them.
    pending_at: u64,
    /// The group of a leader that was cancelled. It begins at the end of the durable part.
    left: Vec<u8>,
    /// The end of the durable part.
    pub(super) durable: u64,
    /// The error after which nothing is appended any more.
    failure: Option<Arc<io::Error>>,
    /// The number of callers that wait for space in the next group.
    waiting: usize,
}

impl State {
    /// The state of a log whose records end here, and are durable before `durable`. With an error
    /// the log is open for reading only.
    pub(super) fn new(end: u64, durable: u64, refusal: Option<io::Error>) -> State {
        let (pending, left, failure) = (Vec::new(), Vec::new(), refusal.map(Arc::new));
        State { pending, pending_at: end, left, durable, failure, waiting: 0 }
    }

    pub(super) fn check(&self) -> io::Result<()> {
        match &self.failure {
            None => Ok(()),
            Some(first) => Err(io::Error::new(first.kind(), LogFailed(Arc::clone(first)))),
        }
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// The end of the pending records.
    pub(super) fn end(&self) -> u64 {
        self.pending_at + self.pending.len() as u64
    }

    /// Adds a record to the next group, and returns its offset; `None` if there is no space.
    fn push(
        &mut self,
        format: Format,
        group_bytes: usize,
        record: &[u8],
        checksum: u32,
    ) -> Option<u64> {
        let (back, space) = (self.pending.len(), format::space_of(record.len()));
        let end = back + space;
        if end > group_bytes {
            return None;
        }
        if end + MOST_FILLER_BYTES > self.pending.capacity() {
            let capacity = (self.pending.capacity() * 2).clamp(end, group_bytes);
            self.pending.reserve_exact(capacity + MOST_FILLER_BYTES - back);
        }
        let offset = self.pending_at + back as u64;
        self.pending.extend_from_slice(&format.frame(offset, back, record.len(), checksum));
        self.pending.extend_from_slice(record);
        self.pending.resize(end, 0);
        Some(offset)
    }
}

/// A place in the line of the callers that wait for space. While there is a line, no other caller
/// gets space: otherwise small records would keep a large one out for ever.
struct Turn<'l> {
    log: &'l Log,
    /// The first caller of the line holds it.
    first: Option<FairLockGuard<'l>>,
}

impl Turn<'_> {
    fn wait(log: &Log) -> io::Result<Turn<'_>> {
        log.state().waiting += 1;
        let mut turn = Turn { log, first: None };
        turn.first = Some(log.line.lock()?);
        Ok(turn)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.log.state().waiting -= 1;
        self.first = None;
    }
}

impl Log {
    /// Adds a record to the next group, and returns its offset. Waits for space.
    pub(super) fn push(&self, record: &[u8]) -> io::Result<u64> {
        let checksum = format::checksum(record);
        {
            let mut state = self.state();
            state.check()?;
            if state.waiting == 0
                && let Some(at) = state.push(self.format, self.group_bytes, record, checksum)
            {
                return Ok(at);
            }
        }
        self.push_in_turn(record, checksum)
    }

    #[cold]
    fn push_in_turn(&self, record: &[u8], checksum: u32) -> io::Result<u64> {
        let _turn = Turn::wait(self)?;
        loop {
            {
                let mut state = self.state();
                state.check()?;
                if let Some(at) = state.push(self.format, self.group_bytes, record, checksum) {
                    return Ok(at);
                }
            }
            self.commit()?;
        }
    }

    /// Returns when all records that were pushed before are durable, or the log has failed.
    pub(super) fn commit(&self) -> io::Result<()> {
        let failed = |_| unreachable!("the log itself keeps its failure");
        self.commits.run_prepared(false, || self.gather(), |_| self.lead(), failed)
    }

    /// Writes the group that another leader has left, and the records that wait.
    fn lead(&self) -> RunEnd {
        while let Some(group) = Group::take(self) {
            let is_last = !group.was_left;
            if let Err(cancelled) = group.write() {
                return RunEnd::GivenUp(cancelled);
            }
            if is_last {
                break;
            }
        }
        RunEnd::Done
    }

    /// Lets other fibers append to the group, as long as records arrive.
    fn gather(&self) -> io::Result<()> {
        if Current::get().is_none() {
            return Ok(());
        }
        let mut before = self.state().pending_bytes();
        for _ in 0..MOST_YIELDS {
            fiber::yield_now_cancellable()?;
            let now = self.state().pending_bytes();
            if now == before {
                break;
            }
            before = now;
        }
        Ok(())
    }
}

/// Records that are written together. Dropped before it has ended, it is left to the next leader.
pub(super) struct Group<'l> {
    log: &'l Log,
    bytes: Vec<u8>,
    at: u64,
    /// Whether an earlier leader has left it.
    pub(super) was_left: bool,
}

impl<'l> Group<'l> {
    /// Takes the group that was left, else the records that wait, if there are any.
    pub(super) fn take(log: &'l Log) -> Option<Group<'l>> {
        let mut state = log.state();
        let state = &mut *state;
        let was_left = !state.left.is_empty();
        if !was_left {
            if state.pending.is_empty() {
                return None;
            }
            // Now the buffers take turns.
            std::mem::swap(&mut state.left, &mut state.pending);
            log.format.seal(state.pending_at, &mut state.left);
            state.pending_at += state.left.len() as u64;
        }
        Some(Group { log, bytes: std::mem::take(&mut state.left), at: state.durable, was_left })
    }

    /// Writes and syncs the group, and notes the result. Returns the error of a cancel, which
    /// leaves the group to another leader.
    pub(super) fn write(mut self) -> io::Result<()> {
        let file = &self.log.file;
        let result = file.write_all_at(&self.bytes, self.at).and_then(|()| file.sync_data());
        if let Err(error) = &result
            && cancelled::reason_of(error).is_some()
        {
            return result;
        }
        let mut state = self.log.state();
        let len = self.bytes.len() as u64;
        self.bytes.clear();
        match result {
            Ok(()) => {
                state.durable += len;
                state.left = std::mem::take(&mut self.bytes);
            }
            Err(error) => {
                state.failure = Some(Arc::new(error));
                state.pending = Vec::new();
            }
        }
        Ok(())
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.log.state().left = std::mem::take(&mut self.bytes);
        }
    }
}

/// The error of an append after a write or a sync has failed, whose error is its source.
#[derive(Debug)]
struct LogFailed(Arc<io::Error>);

impl fmt::Display for LogFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a write or a sync of the log failed ({}), so nothing more is appended; remove the \
             cause, drop the log and open it again, which shows the records that it has",
            self.0
        )
    }
}

impl Error for LogFailed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}
