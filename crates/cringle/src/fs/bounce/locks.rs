//! The locks of all files of the process that are opened with [`Direct::Bounce`](super::Direct),
//! one for each inode.

use crate::sync::range_lock::RangeLock;
use crate::sys::lock::Mutex;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};

/// The device and the number of an inode.
type Inode = (u64, u64);

static LOCKS: Mutex<BTreeMap<Inode, Weak<RangeLock>>> = Mutex::new(BTreeMap::new());

/// Returns the lock of the file. It is the same for all handles that are open at the same time.
pub(super) fn of(metadata: &Metadata) -> Arc<RangeLock> {
    let mut locks = LOCKS.lock();
    let inode = (metadata.dev(), metadata.ino());
    if let Some(lock) = locks.get(&inode).and_then(Weak::upgrade) {
        return lock;
    }
    // Each new file pays for the removal of those that are closed: the table has at most twice as
    // many entries as files are open.
    if locks.len().is_power_of_two() {
        locks.retain(|_, lock| lock.strong_count() > 0);
    }
    let lock = Arc::default();
    locks.insert(inode, Arc::downgrade(&lock));
    lock
}
