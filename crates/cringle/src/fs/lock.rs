//! Locks on whole files, between processes (`flock`).
//!
//! A lock may be held for ever by a process that nobody here controls, so a fiber that waits for one
//! must not hold a thread of the small pool, nor one of the ring's: N waiters would starve the calls by
//! which the holder gets on and lets go. A thread for each waiter could not be cancelled. So a waiter
//! *asks*, without waiting, and pauses in between; its pauses grow to 10 ms, a cancel ends them, and any
//! number of waiters holds no thread at all.
//!
//! Of those who wait in this process for the same file and kind of lock only the first asks, the others
//! stand in queue behind it: a thousand waiters cost the kernel as much as one. Each asks once before it
//! joins the queue, as the lock may be its file's already, and because the kernel turns a lock of one
//! kind into the other by letting go of it first. Shared and exclusive waiters stand in different
//! queues: readers pass a waiting writer, as they do in the kernel.

use super::File;
use super::perform::perform;
use crate::driver::syscall::Syscall;
use crate::driver::{Op, blocking};
use crate::fiber::backoff::Backoff;
use crate::fiber::protect;
use crate::runtime::worker::Worker;
use crate::sync::fair_lock::FairLock;
use crate::sys;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};

impl File {
    /// Waits for the exclusive lock of the file; only the calling fiber does. The lock ends with
    /// [`unlock`](File::unlock), or when the last clone of the file is closed.
    ///
    /// ```
    /// use cringle::fs::{File, TryLockError};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("file");
    /// cringle::run(|| -> std::io::Result<()> {
    ///     let file = File::create(&path)?;
    ///     file.lock()?;
    ///     let other = File::open(&path)?;
    ///     assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
    ///     file.unlock()?;
    ///     Ok(other.try_lock()?)
    /// })
    /// # ?; Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As `std::fs::File::lock`; and [`Cancelled`](crate::Cancelled).
    ///
    /// # Cancellation
    ///
    /// The wait is given up; a [`timeout`](crate::time::timeout) bounds it. On a fiber a lock that
    /// another process lets go is noticed within 10 ms.
    pub fn lock(&self) -> io::Result<()> {
        self.wait_for(libc::LOCK_EX)
    }

    /// Waits for a shared lock: any number of files may have one while none has the exclusive.
    ///
    /// ```
    /// use cringle::fs::File;
    ///
    /// let (one, other) = (File::open("/proc/self/exe")?, File::open("/proc/self/exe")?);
    /// one.lock_shared()?;
    /// other.lock_shared()?;
    /// assert!(one.try_lock().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`lock`](File::lock).
    pub fn lock_shared(&self) -> io::Result<()> {
        self.wait_for(libc::LOCK_SH)
    }

    /// Takes the exclusive lock if it is free.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::try_lock`; and [`Cancelled`](crate::Cancelled).
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        self.attempt(libc::LOCK_EX)
    }

    /// Takes a shared lock if nobody has the exclusive one.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](File::try_lock).
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        self.attempt(libc::LOCK_SH)
    }

    /// Lets go of the lock, of either kind.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::unlock`.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber lets go all the same.
    pub fn unlock(&self) -> io::Result<()> {
        protect(|| self.flock(libc::LOCK_UN))
    }

    fn flock(&self, how: i32) -> io::Result<()> {
        // SAFETY: the op has no pointers.
        unsafe { perform(Op::Syscall(Syscall::Lock { fd: self.fd(), how })) }.map(drop)
    }

    fn attempt(&self, how: i32) -> Result<(), TryLockError> {
        self.flock(how | libc::LOCK_NB).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => TryLockError::WouldBlock,
            _ => TryLockError::Error(e),
        })
    }

    fn wait_for(&self, how: i32) -> io::Result<()> {
        let Some((worker, fiber)) = Worker::current() else {
            let op = Op::Syscall(Syscall::Lock { fd: self.fd(), how });
            // SAFETY: the op has no pointers.
            return sys::result_of(unsafe { blocking::perform(&op) }).map(drop);
        };
        if let Some(result) = settled(self.attempt(how)) {
            return result;
        }
        let known = self.metadata()?;
        let waiter = QueuedWaiter::join((known.dev(), known.ino(), how));
        let _first = waiter.queue.lock()?;
        let mut backoff = Backoff::default();
        loop {
            if let Some(result) = settled(self.attempt(how)) {
                return result;
            }
            backoff.pause(worker, fiber)?;
        }
    }
}

/// The end of the wait, if this is it.
fn settled(attempt: Result<(), TryLockError>) -> Option<io::Result<()>> {
    match attempt {
        Ok(()) => Some(Ok(())),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Error(e)) => Some(Err(e)),
    }
}

/// A file, by device and inode, and the kind of lock.
type Key = (u64, u64, i32);

/// The queues of this process, and how many stand in each.
static QUEUES: Mutex<BTreeMap<Key, (Arc<FairLock>, usize)>> = Mutex::new(BTreeMap::new());

/// A place in a queue; the queue is forgotten when nobody stands in it.
struct QueuedWaiter {
    key: Key,
    queue: Arc<FairLock>,
}

impl QueuedWaiter {
    fn join(key: Key) -> QueuedWaiter {
        let mut queues = QUEUES.lock().expect("no code panics under this lock");
        let (queue, waiters) = queues.entry(key).or_default();
        *waiters += 1;
        QueuedWaiter { key, queue: Arc::clone(queue) }
    }
}

impl Drop for QueuedWaiter {
    fn drop(&mut self) {
        let mut queues = QUEUES.lock().expect("no code panics under this lock");
        if let Some((_, waiters)) = queues.get_mut(&self.key) {
            *waiters -= 1;
            if *waiters == 0 {
                queues.remove(&self.key);
            }
        }
    }
}

/// Why a lock was not taken: `std::fs::TryLockError` (which is younger than the Rust asked for here).
pub enum TryLockError {
    /// The kernel refused it, or the fiber is cancelled.
    Error(io::Error),
    /// Somebody else has it.
    WouldBlock,
}

/// As std's: the error's own text, or the name.
impl Debug for TryLockError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TryLockError::Error(e) => Debug::fmt(e, f),
            TryLockError::WouldBlock => "WouldBlock".fmt(f),
        }
    }
}

impl std::fmt::Display for TryLockError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TryLockError::Error(e) => std::fmt::Display::fmt(e, f),
            TryLockError::WouldBlock => {
                f.write_str("lock acquisition failed because the operation would block")
            }
        }
    }
}

impl std::error::Error for TryLockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TryLockError::Error(e) => Some(e),
            TryLockError::WouldBlock => None,
        }
    }
}

impl From<TryLockError> for io::Error {
    fn from(e: TryLockError) -> io::Error {
        match e {
            TryLockError::Error(e) => e,
            TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        }
    }
}
