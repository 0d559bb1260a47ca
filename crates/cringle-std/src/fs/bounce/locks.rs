//! The locks of all files of the process that are opened with [`Direct::Bounce`](super::Direct),
//! one for each regular file and for each block device.

use crate::sync::range_lock::RangeLock;
use cringle_sys::fork::{self, ForkLock};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::{Arc, Weak};

/// What the handles to the same blocks have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Storage {
    /// The device and the number of an inode.
    File(u64, u64),
    /// The number of a block device, of which several inodes may be nodes.
    Device(u64),
}

struct Locks {
    by_storage: BTreeMap<Storage, Weak<RangeLock>>,
    /// The number of entries at which the entries of closed files are removed.
    most: usize,
    /// That of the process whose writes hold the locks.
    generation: u32,
}

/// The least number of entries that are worth a search for closed files.
const MIN_MOST: usize = 16;

static LOCKS: ForkLock<Locks> =
    ForkLock::new(Locks { by_storage: BTreeMap::new(), most: MIN_MOST, generation: 0 });

/// Returns the lock of the file. It is the same for all handles that are open at the same time, but
/// a child of `fork` has a lock of its own for the handles that it has opened itself: a thread of
/// the parent may hold the lock of the others.
pub(super) fn of(metadata: &Metadata) -> Arc<RangeLock> {
    let mut locks = LOCKS.lock();
    if locks.generation != fork::generation() {
        *locks =
            Locks { by_storage: BTreeMap::new(), most: MIN_MOST, generation: fork::generation() };
    }
    let Locks { by_storage, most, .. } = &mut *locks;
    let storage = if metadata.file_type().is_block_device() {
        Storage::Device(metadata.rdev())
    } else {
        Storage::File(metadata.dev(), metadata.ino())
    };
    if let Some(lock) = by_storage.get(&storage).and_then(Weak::upgrade) {
        return lock;
    }
    // Each new file pays for the removal of closed files: the table has at most twice as many
    // entries as files were open at the last removal.
    if by_storage.len() >= *most {
        by_storage.retain(|_, lock| lock.strong_count() > 0);
        *most = MIN_MOST.max(2 * by_storage.len());
    }
    let lock = Arc::default();
    by_storage.insert(storage, Arc::downgrade(&lock));
    lock
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::of;
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    use std::process::Command;
    use std::sync::Arc;

    #[test]
    fn nodes_of_a_block_device_share_a_lock() {
        let found = std::fs::read_dir("/dev").unwrap().filter_map(|entry| {
            let known = entry.ok()?.metadata().ok()?;
            known.file_type().is_block_device().then_some(known)
        });
        let devices: Vec<_> = found.take(2).collect();
        let Some(device) = devices.first() else { return };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node");
        let (major, minor) = (libc::major(device.rdev()), libc::minor(device.rdev()));
        let numbers = [major.to_string(), minor.to_string()];
        let made = Command::new("mknod").arg(&path).arg("b").args(numbers).status();
        if !made.is_ok_and(|status| status.success()) {
            return; // It takes a privilege.
        }
        let node = std::fs::metadata(&path).unwrap();
        let lock = of(device);
        assert!(node.ino() != device.ino() && Arc::ptr_eq(&lock, &of(&node)));
        assert!(devices[1..].iter().all(|other| !Arc::ptr_eq(&lock, &of(other))));
    }
}
