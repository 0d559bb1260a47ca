//! Advisory locks on whole files, between processes (`flock`).
//!
//! Another process may hold a lock for ever, so a fiber that waits for one must not hold a thread
//! of the small pool or of the ring: N waiters would starve the calls that the holder needs before
//! it unlocks. A thread for each waiter could not be cancelled. So a waiter polls with `LOCK_NB`
//! and a backoff of at most 10 ms, which a cancel ends, and any number of waiters holds no thread.
//!
//! Only the first waiter of this process for the same file and kind of lock polls; the others queue
//! behind it, so that a thousand waiters cost the kernel as much as one. Each waiter tries once
//! before it queues: its file may hold the lock already, and the kernel converts a lock from one
//! kind to the other by releasing it first. Shared and exclusive waiters have separate queues:
//! readers pass a waiting writer, as they do in the kernel.

use super::File;
use super::perform::perform;
use crate::fiber::backoff::Backoff;
use crate::fiber::protect;
use crate::sync::fair_lock::FairLock;
use cringle_core::worker::Current;
use cringle_driver::syscall::Syscall;
use cringle_driver::{Op, blocking};
use cringle_sys as sys;
use cringle_sys::fork::{self, ForkLock};
use cringle_sys::syscall;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

impl File {
    /// Acquires the exclusive lock of the file. Only the calling fiber waits. The lock is released
    /// by [`unlock`](File::unlock), or when the last clone of the file is closed.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::lock`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    ///
    /// # Cancellation
    ///
    /// A cancel ends the wait, and so does a [`timeout`](crate::time::timeout). A fiber acquires a
    /// lock that another process has released within 10 ms.
    pub fn lock(&self) -> io::Result<()> {
        self.wait_for(libc::LOCK_EX)
    }

    /// Acquires a shared lock. Any number of open files may hold one while none holds the exclusive
    /// lock.
    ///
    /// # Errors
    ///
    /// As [`lock`](File::lock).
    pub fn lock_shared(&self) -> io::Result<()> {
        self.wait_for(libc::LOCK_SH)
    }

    /// Acquires the exclusive lock if it is free.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](TryLockError::WouldBlock) if another open file holds a lock; otherwise as
    /// `std::fs::File::try_lock`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        self.attempt(libc::LOCK_EX)
    }

    /// Acquires a shared lock if no other open file holds the exclusive one.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](File::try_lock).
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        self.attempt(libc::LOCK_SH)
    }

    /// Releases the lock, of either kind.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::unlock`.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber releases the lock too.
    pub fn unlock(&self) -> io::Result<()> {
        protect(|| self.flock(libc::LOCK_UN))
    }

    /// Releases the lock by a plain call, which does not wait. It works after a loss of power in a
    /// simulation, too.
    pub(crate) fn unlock_plainly(&self) {
        // SAFETY: no pointers.
        unsafe { syscall!(SYS_flock, self.fd(), libc::LOCK_UN) };
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

    /// Acquires a lock of this kind, or converts to it.
    pub(crate) fn wait_for(&self, how: i32) -> io::Result<()> {
        let Some(current) = Current::get() else {
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
            backoff.pause(current)?;
        }
    }
}

/// Returns the result of the wait, or `None` if the lock is still held.
fn settled(attempt: Result<(), TryLockError>) -> Option<io::Result<()>> {
    match attempt {
        Ok(()) => Some(Ok(())),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Error(e)) => Some(Err(e)),
    }
}

/// A file, by device and inode number, and a kind of lock.
type Key = (u64, u64, i32);

/// The key, and the generation of the process: a child of `fork` does not wait for its parent's
/// waiters.
type OwnKey = (Key, u32);

/// The queues of this process, with the number of waiters in each.
static QUEUES: ForkLock<BTreeMap<OwnKey, (Arc<FairLock>, usize)>> = ForkLock::new(BTreeMap::new());

/// A waiter's membership in a queue. The queue is removed with its last waiter.
struct QueuedWaiter {
    key: OwnKey,
    queue: Arc<FairLock>,
}

impl QueuedWaiter {
    fn join(key: Key) -> QueuedWaiter {
        let key = (key, fork::generation());
        let mut queues = QUEUES.lock();
        let (queue, waiters) = queues.entry(key).or_default();
        *waiters += 1;
        QueuedWaiter { key, queue: Arc::clone(queue) }
    }
}

impl Drop for QueuedWaiter {
    fn drop(&mut self) {
        let mut queues = QUEUES.lock();
        if let Some((_, waiters)) = queues.get_mut(&self.key) {
            *waiters -= 1;
            if *waiters == 0 {
                queues.remove(&self.key);
            }
        }
    }
}

/// The error of [`File::try_lock`], as `std::fs::TryLockError`, which the supported Rust version
/// lacks.
///
/// ```
/// use cringle::fs::{File, TryLockError};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("file");
/// let (file, other) = (File::create(&path)?, File::create(&path)?);
/// file.lock()?;
/// match other.try_lock() {
///     Err(TryLockError::WouldBlock) => println!("another open file holds the lock"),
///     result => result?,
/// }
/// # std::io::Result::Ok(())
/// ```
pub enum TryLockError {
    /// The call failed, or the fiber is cancelled.
    Error(io::Error),
    /// Another open file holds the lock.
    WouldBlock,
}

/// Prints the error's own text, or the variant's name, as std's.
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
