//! The options of a log, and its opening.

use super::group::State;
use super::locked::LockedFile;
use super::{Log, format, recovery};
use cringle_std::fs::File;
use cringle_std::internal::FairLock;
use cringle_std::internal::SharedRun;
use cringle_sys::lock::Mutex;
use std::io;
use std::path::Path;

/// The default of [`LogBuilder::group_bytes`].
const GROUP_BYTES: usize = 1 << 20;
const LEAST_GROUP_BYTES: usize = 4 << 10;
const MOST_GROUP_BYTES: usize = 1 << 30;

/// The options of a [`Log`], from [`Log::builder`].
///
/// ```
/// use cringle::block::{Log, LogBuilder};
///
/// let builder: LogBuilder = Log::builder().group_bytes(1 << 16);
/// # let _ = builder;
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until `open`"]
pub struct LogBuilder {
    group_bytes: usize,
    trusts_cache: bool,
}

impl LogBuilder {
    pub(super) fn new() -> LogBuilder {
        LogBuilder { group_bytes: GROUP_BYTES, trusts_cache: false }
    }

    /// Does not write the last group once more, to prove that a test finds the mistake.
    #[cfg(any(test, feature = "sabotage"))]
    #[doc(hidden)]
    pub fn trust_cache(mut self) -> LogBuilder {
        self.trusts_cache = true;
        self
    }

    /// Sets the largest size of a group, from 4 KiB to 1 GiB (default: 1 MiB). It bounds the
    /// memory of the log, and the size of a record.
    ///
    /// ```
    /// use cringle::block::Log;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// let log = Log::builder().group_bytes(4096).open(&path, |_, _| Ok(()))?;
    /// assert!(log.append(&[0; 4096]).is_err());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn group_bytes(mut self, bytes: usize) -> LogBuilder {
        let bytes = bytes.clamp(LEAST_GROUP_BYTES, MOST_GROUP_BYTES);
        self.group_bytes = bytes - bytes % format::ALIGNMENT;
        self
    }

    /// Opens or creates a log, and passes each record with its offset to `replay`, in order.
    ///
    /// What a crash has left of a group behind its last intact record is removed. The last group is
    /// written once more and synced, because it may be in the page cache only. The name of the file
    /// is made durable, too. The records count when `open` has returned: before, the last ones may
    /// not be durable.
    ///
    /// If the file system refuses that, because it is full or read-only or a quota is reached, the
    /// log is open for reading only: `open` succeeds, and [`Log::check`] and all appends return the
    /// error of the file system. Then the records of the last group may not be durable, and
    /// [`Log::end`] is before them. Make space, and open the log again. (An empty file cannot
    /// become a log without space: that is an error of `open`.)
    ///
    /// The same holds for a log that is larger than the process may make files (`RLIMIT_FSIZE`),
    /// if the program ignores SIGXFSZ: that signal ends a process that writes beyond its limit.
    ///
    /// The log has an exclusive lock ([`File::try_lock`]) where the file system has locks: drop a
    /// log that has failed before you open it again. The log is the file that has this name once
    /// the lock is acquired, so the owner of the lock may rename or remove the file.
    ///
    /// A file that is empty becomes a log, and so does what a crash may have left of a log's
    /// creation: at most 24 bytes, the begin of a log's header and zeros. So a file of another
    /// program that has only zeros, or only the first bytes of "crnglog", is overwritten.
    ///
    /// ```
    /// use cringle::block::Log;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// let mut count = 0;
    /// let log = Log::builder().open(&path, |_offset, _record| {
    ///     count += 1;
    ///     Ok(())
    /// })?;
    /// assert_eq!(count, 0);
    /// # drop(log);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// - `InvalidData`: the file is not a log, or it is [damaged](Log#what-damage-is-noticed). The
    ///   file is left as it is.
    /// - `ResourceBusy`: the file is locked by another log, and stays so for a second. (The kernel
    ///   keeps the locks of a killed process for some milliseconds.)
    /// - The first error of `replay`; the errors of opening, reading, writing and syncing the file
    ///   and of syncing its directory; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn open<P, F>(self, path: P, mut replay: F) -> io::Result<Log>
    where
        P: AsRef<Path>,
        F: FnMut(u64, &[u8]) -> io::Result<()>,
    {
        let path = path.as_ref();
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let (file, refusal) = match LockedFile::open(&options, path) {
            Err(e) if e.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                match LockedFile::open(File::options().read(true), path) {
                    // There is none; or its NFS locks only files that are open for writing.
                    Err(second)
                        if matches!(second.raw_os_error(), Some(libc::ENOENT | libc::EBADF)) =>
                    {
                        return Err(e);
                    }
                    opened => (opened?, Some(e)),
                }
            }
            opened => (opened?, None),
        };
        let recovered = recovery::recover(&file, path, self.trusts_cache, refusal, &mut replay)?;
        let (end, durable) = (recovered.end, recovered.durable);
        Ok(Log {
            file,
            format: recovered.format,
            group_bytes: self.group_bytes,
            commits: SharedRun::new(),
            state: Mutex::new(State::new(end, durable, recovered.refusal)),
            line: FairLock::default(),
            cut_bytes: recovered.cut_bytes,
            found_end: end,
        })
    }
}
