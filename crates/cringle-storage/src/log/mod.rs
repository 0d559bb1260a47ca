//! A log of records: each append returns when its record is durable, and appends that wait at the
//! same time share a write and a sync.
//!
//! An append copies its record, with a frame, behind the records that wait (`enqueue`). Then it
//! asks for a commit (`wait_durable`, by a [`SharedRun`]), which one of the callers leads: it takes
//! all waiting records as one *group*, writes them, and syncs. Records that arrive meanwhile are
//! the next group. So groups are written one after the other, each after the sync of the group
//! before, on which [`recovery`] relies.
//!
//! When a group is durable, its callers are woken before the next leader. Before the leader takes
//! the group, it yields while records arrive. So fibers of one worker that append in a loop are all
//! in each group; if the lead passed on at once, half of them would always wait for the sync after
//! the next. Fibers of two workers do wait in this way: the fibers of each worker are a group, and
//! the groups alternate.
//!
//! A record that finds no space waits in line, and while there is a line, no record overtakes it:
//! otherwise small records would keep a large one out.
//!
//! [`group`] holds the waiting records and their outcomes. [`format`](mod@format) defines the bytes
//! of the file.

mod builder;
mod format;
mod group;
mod locked;
mod recovery;

use cringle_core::worker::{Current, Worker};
use cringle_std::internal::SharedRun;
use cringle_std::internal::{FairLock, FairLockGuard};
use cringle_sys::lock::{Mutex, MutexGuard};
use format::{FRAME_BYTES, Format};
use group::State;
use locked::LockedFile;
use std::fmt;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub use builder::LogBuilder;

/// An append-only file of records, whose [`append`](Log::append) returns when the record is
/// durable.
///
/// Fibers and threads append at the same time, and share the work: the records that arrive while a
/// write and a sync are under way are the next group, for which there is one write and one
/// `fdatasync`. So many appends take about as long as one.
///
/// Each record has a checksum. [`open`](Log::open) passes the records to a closure, and cuts what a
/// crash has left of the last group.
///
/// ```
/// use cringle::block::Log;
/// use cringle::fiber;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("log");
/// cringle::run(|| {
///     let log = Log::open(&path, |_, _| Ok(()))?;
///     fiber::try_par_for_each(0..100, 100, |n: u32| {
///         log.append(format!("commit {n}").as_bytes()).map(drop)
///     })
/// })?;
///
/// let mut count = 0;
/// Log::open(&path, |_offset, record| {
///     count += 1;
///     assert!(record.starts_with(b"commit"));
///     Ok(())
/// })?;
/// assert_eq!(count, 100);
/// # std::io::Result::Ok(())
/// ```
///
/// A log only grows. To remove old records, begin a new file from time to time, and remove the
/// files that are no longer needed.
///
/// # What is promised
///
/// - A record whose append has returned an offset survives a crash and a loss of power. This holds
///   as far as the disk keeps what it has confirmed, and a loss of power leaves each sector with
///   its old or its new bytes.
/// - Offsets are in the order in which the records are in the file. Records that one caller appends
///   one after the other are in that order.
/// - `open` passes on only records that were appended. The last of them may be some whose append
///   has not returned, or has returned an error: they are made durable then.
/// - After a write or a sync has failed, the kernel may have dropped what it could not write, and
///   later syncs would succeed without it. So every later append fails, too, until the log is
///   opened again. After `ENOSPC`, too: the part of the group that was written is cut by `open`,
///   which needs no space for it. On btrfs it may need space to make the rest durable: while there
///   is none, the log is open [for reading only](LogBuilder::open).
///
/// Dropping the log writes nothing: what an append has acknowledged is durable. A record which no
/// group contains yet, because its caller was cancelled or has only enqueued it, is discarded.
///
/// # What damage is noticed
///
/// A file can lose bytes that were durable: a sector cannot be read, a write went astray, another
/// program has changed them. [`open`](LogBuilder::open) returns an error of the kind `InvalidData`,
/// and leaves the file as it is, if the damage changes
///
/// - the header, the first 24 bytes; or
/// - any group but the last one. There is one exception: the damage changes no record before a
///   group, the first 16 bytes of the group, and the 16 bytes before each record of all later
///   groups. If sectors of 512 bytes are lost, and the sectors between them, too, and are filled
///   with zeros or foreign bytes, this exception does not occur.
///
/// A crash can leave the same as damage to the last group only. So it is not noticed: the records
/// in front of the damage are kept, the others of the group are cut, although their appends may
/// have returned. [`cut_bytes`](Log::cut_bytes) is not 0 then. Nor is it noticed if the end of the
/// file is missing, or if sectors at the end have the contents of an earlier time.
///
/// This is version 2 of the format. A log that was created with version 1 keeps it: there only an
/// intact frame of a later group shows damage to the groups before, so all groups of a lost sector
/// at the end of the file are cut without notice. Copy its records to a new log to have version 2,
/// which older versions of this library do not open.
///
/// # Memory
///
/// Two groups: one that is written, and one that collects records. While the second one is full,
/// appends wait, and get space in the order in which they have come. While a log is opened, 256 KiB
/// or the largest record.
pub struct Log {
    file: LockedFile,
    format: Format,
    group_bytes: usize,
    /// Shares the commits.
    commits: SharedRun,
    state: Mutex<State>,
    /// The callers that wait for space in the next group.
    line: FairLock,
    cut_bytes: u64,
    /// The end of the records that [`LogBuilder::open`] has found.
    found_end: u64,
}

impl Log {
    /// Opens or creates a log with the default options: see [`LogBuilder::open`].
    ///
    /// ```
    /// use cringle::block::Log;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// Log::open(&path, |_, _| Ok(()))?.append(b"a record")?;
    /// let mut records = Vec::new();
    /// let log = Log::open(&path, |offset, record| {
    ///     records.push((offset, record.to_owned()));
    ///     Ok(())
    /// })?;
    /// let [(offset, record)] = &records[..] else { panic!("one record was appended") };
    /// assert_eq!(log.read(*offset)?, *record);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`LogBuilder::open`].
    pub fn open<P, F>(path: P, replay: F) -> io::Result<Log>
    where
        P: AsRef<Path>,
        F: FnMut(u64, &[u8]) -> io::Result<()>,
    {
        Log::builder().open(path, replay)
    }

    /// Returns the options of a log.
    ///
    /// ```
    /// use cringle::block::Log;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// let log = Log::builder().group_bytes(64 << 10).open(&path, |_, _| Ok(()))?;
    /// # drop(log);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn builder() -> LogBuilder {
        LogBuilder::new()
    }

    /// Appends a record, waits until it is durable, and returns its offset in the file.
    ///
    /// Outside of a fiber the thread waits. Fibers and threads share groups.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::block::Log;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// cringle::run(|| {
    ///     let log = Log::open(&path, |_, _| Ok(()))?;
    ///     let (first, second) = (log.append(b"first")?, log.append(b"second")?);
    ///     assert!(first < second);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - `InvalidInput`: the record, with 16 bytes, is larger than
    ///   [`group_bytes`](LogBuilder::group_bytes). Nothing was appended.
    /// - `Deadlock`: the caller is code beside a fiber, such as a panic hook, which must not wait.
    ///   Nothing was appended.
    /// - The kind of the first error of a write or a sync, which is the
    ///   [source](std::error::Error::source), for all records of its group and all later appends.
    ///   It is unknown which records of that group are in the log; later ones are not. Open the log
    ///   again.
    /// - [`Cancelled`](cringle_core::cancelled::Cancelled).
    ///
    /// # Cancellation
    ///
    /// The append of a fiber that is already cancelled appends nothing. If a cancel or a deadline
    /// ends the wait, it is unknown whether the record is in the log: it belongs to a group, which
    /// is written if any other caller commits that group or a later one. Other callers are not
    /// affected.
    pub fn append(&self, record: &[u8]) -> io::Result<u64> {
        let offset = self.enqueue(record)?;
        self.make_durable(offset)?;
        Ok(offset)
    }

    /// Adds a record to the next group, and returns its offset in the file, without waiting until
    /// the record is durable: [`wait_durable`](Log::wait_durable) does.
    ///
    /// The records are in the file in the order of these calls. So a caller that makes a change to
    /// its own data, and enqueues the record of this change under the same lock, has both in one
    /// order. It waits after it has let go of the lock.
    ///
    /// ```
    /// use cringle::block::Log;
    /// use cringle::sync::Mutex;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// let log = Log::open(&path, |_, _| Ok(()))?;
    /// let balance = Mutex::new(100_u64);
    /// let offset = {
    ///     let mut balance = balance.lock().unwrap();
    ///     let less = *balance - 30;
    ///     let offset = log.enqueue(&less.to_le_bytes())?;
    ///     *balance = less;
    ///     offset
    /// };
    /// log.wait_durable(offset)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// Nothing is written before a caller waits for this record or a later one, or appends, or
    /// until the group is full. Then the call waits until there is space.
    ///
    /// # Errors
    ///
    /// - `InvalidInput`: the record, with 16 bytes, is larger than
    ///   [`group_bytes`](LogBuilder::group_bytes).
    /// - `Deadlock`: the caller is code beside a fiber, such as a panic hook, which must not wait.
    /// - The kind of the first error of a write or a sync, which is the
    ///   [source](std::error::Error::source): the log has failed. Open it again.
    /// - [`Cancelled`](cringle_core::cancelled::Cancelled), if the fiber is already cancelled, or
    ///   while it waits for space.
    ///
    /// After an error the record is not in the log, and never will be.
    pub fn enqueue(&self, record: &[u8]) -> io::Result<u64> {
        admit()?;
        if format::space_of(record.len()) > self.group_bytes {
            let (len, most) = (record.len(), self.group_bytes - FRAME_BYTES);
            let text = format!("a record of {len} bytes is too large for the log: at most {most}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.push(record)
    }

    /// Waits until the record at an offset that [`enqueue`](Log::enqueue) has returned is durable.
    /// All records before it are durable then, too.
    ///
    /// ```
    /// use cringle::block::Log;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// let log = Log::open(&path, |_, _| Ok(()))?;
    /// let first = log.enqueue(b"first")?;
    /// let second = log.enqueue(b"second")?;
    /// assert!(log.end() <= first);
    /// log.wait_durable(second)?;
    /// assert!(log.end() > second);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// - `InvalidInput`: the offset is not before the end of the records that were enqueued.
    /// - `Deadlock`: the caller is code beside a fiber, such as a panic hook, which must not wait.
    /// - The kind of the first error of a write or a sync, which is the
    ///   [source](std::error::Error::source), unless the record was durable before. It is unknown
    ///   whether the record is in the log. Open it again.
    /// - [`Cancelled`](cringle_core::cancelled::Cancelled).
    ///
    /// # Cancellation
    ///
    /// If a cancel or a deadline ends the wait, it is unknown whether the record is in the log: see
    /// [`append`](Log::append).
    pub fn wait_durable(&self, offset: u64) -> io::Result<()> {
        admit()?;
        {
            let state = self.state();
            if offset < state.durable {
                return Ok(());
            }
            state.check()?;
            let end = state.end();
            if offset >= end {
                let text =
                    format!("no record was enqueued at byte {offset}: the log ends at {end}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        }
        self.make_durable(offset)
    }

    /// Returns when the record at this offset, which was pushed, is durable.
    fn make_durable(&self, offset: u64) -> io::Result<()> {
        self.commit()?;
        let state = self.state();
        if offset < state.durable {
            return Ok(());
        }
        state.check()?;
        unreachable!("a commit that has not failed covers all records before it");
    }

    /// Reads the durable record at an offset that [`append`](Log::append) or
    /// [`enqueue`](Log::enqueue) has returned, or that [`open`](Log::open) has passed on.
    ///
    /// ```
    /// use cringle::block::Log;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// let log = Log::open(&path, |_, _| Ok(()))?;
    /// let offset = log.append(b"a record")?;
    /// assert_eq!(log.read(offset)?, b"a record");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidData` if no intact record begins there, or none that is durable; the errors of the
    /// read; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn read(&self, offset: u64) -> io::Result<Vec<u8>> {
        /// Most records need one read.
        const FIRST_BYTES: usize = 4096;
        let no_record = || {
            let text = format!("no intact record begins at byte {offset} of the log");
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let available = self.end().max(self.found_end).saturating_sub(offset);
        let mut bytes = vec![0; available.min(FIRST_BYTES as u64) as usize];
        self.file.read_exact_at(&mut bytes, offset)?;
        let frame = self.format.read_frame(offset, &bytes).filter(|frame| !frame.is_filler);
        let frame = frame.ok_or_else(no_record)?;
        let (len, have) = (FRAME_BYTES + frame.len, bytes.len());
        if len as u64 > available {
            return Err(no_record());
        }
        bytes.resize(len, 0);
        if len > have {
            self.file.read_exact_at(&mut bytes[have..], offset + have as u64)?;
        }
        bytes.drain(..FRAME_BYTES);
        if frame.is_of(&bytes) { Ok(bytes) } else { Err(no_record()) }
    }

    /// Returns the end of the durable part of the file: all records before it are durable.
    ///
    /// ```
    /// use cringle::block::Log;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// let log = Log::open(&path, |_, _| Ok(()))?;
    /// let offset = log.append(b"a record")?;
    /// assert!(log.end() > offset);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn end(&self) -> u64 {
        self.state().durable
    }

    /// Returns the error with which appends fail: a write or a sync has failed, or the log is open
    /// for reading only.
    ///
    /// ```
    /// use cringle::block::Log;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// let log = Log::open(&path, |_, _| Ok(()))?;
    /// if let Err(e) = log.check() {
    ///     eprintln!("cannot write to the log: {e}");
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`append`](Log::append) whose source is the first error of the file system.
    pub fn check(&self) -> io::Result<()> {
        self.state().check()
    }

    /// Returns the number of bytes that [`open`](Log::open) has cut from the end of the file: what
    /// a crash has left of the last group. 0 unless a crash, a failed write, or damage has
    /// preceded.
    ///
    /// ```
    /// use cringle::block::Log;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// Log::open(&path, |_, _| Ok(()))?.append(b"a record")?;
    /// let len = std::fs::metadata(&path)?.len();
    /// std::fs::OpenOptions::new().write(true).open(&path)?.set_len(len - 1)?;
    /// assert_eq!(Log::open(&path, |_, _| Ok(()))?.cut_bytes(), 16 + 8 - 1);
    /// assert_eq!(Log::open(&path, |_, _| Ok(()))?.cut_bytes(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn cut_bytes(&self) -> u64 {
        self.cut_bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Returns the error of a caller that must not append.
fn admit() -> io::Result<()> {
    match Current::get() {
        Some(current) => {
            current.spend();
            current.admit()
        }
        None if Worker::here().is_some() => Err(io::Error::new(
            io::ErrorKind::Deadlock,
            "code beside a fiber, such as a panic hook, cannot wait for a log",
        )),
        None => Ok(()),
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("file", &self.file).field("end", &self.end()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Log;
    use std::io::ErrorKind;

    /// If such code waited for the leader, neither it nor the worker would continue.
    #[test]
    fn append_beside_a_fiber_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let log = Log::open(directory.path().join("log"), |_, _| Ok(())).unwrap();
        cringle_run::run::run(|| {
            let append = || log.append(b"a record").unwrap_err().kind();
            let kind = cringle_core::foreign::call_beside(append).unwrap();
            assert_eq!(kind, ErrorKind::Deadlock);
        });
    }
}
