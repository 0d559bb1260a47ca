//! The keys of names and the fingerprints of files: keyed hashes (SipHash), so that a record has
//! the same size for every name, and two names with one key cannot be constructed.

use super::manifest::FileEntry;
use crate::sys::{Stat, Statx};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

/// The seconds within which two changes of a file may get the same time: FAT's granularity.
const GRANULARITY: i64 = 2;

/// What a record has of the source: its state when the copy began to read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Recorded {
    pub(crate) key: u128,
    pub(crate) source: u64,
    /// Identifies the source's inode, and the user of this run. Another inode may be another file
    /// with equal times, or that of a file system whose numbers change. Another user may set
    /// attributes that this one may not set.
    pub(crate) inode_and_user: u64,
    pub(crate) size: u64,
    /// A change of the source may leave its times unchanged: it had changed so recently, or its
    /// file system has no time of the last status change.
    pub(crate) is_recent: bool,
    /// The target as this run has left it; nothing is recorded if it has changed since.
    pub(crate) content: Option<Content>,
}

/// What a rename, a link or a change of attributes leaves as it is: inode, size, and the time of
/// the last modification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    inode: u64,
    size: u64,
    modified: (i64, u32),
}

impl Content {
    pub(super) fn of(target: &Statx) -> Content {
        let modified = (target.stx_mtime.tv_sec, target.stx_mtime.tv_nsec);
        Content { inode: target.stx_ino, size: target.stx_size, modified }
    }

    /// Returns whether the other is the same, or has the times of this source within their
    /// granularity. (A later write within that time leaves the source recent.)
    pub(super) fn is_kept_by(&self, other: Content, source: Option<&Stat>) -> bool {
        let is_set = source.is_some_and(|source| {
            let since = source.st_mtime - other.modified.0;
            (0..=GRANULARITY).contains(&since)
        });
        *self == other || is_set && Content { modified: self.modified, ..other } == *self
    }
}

/// Computes keys and fingerprints for one manifest.
pub(super) struct Keys {
    /// The random number of the manifest.
    pub(super) number: u64,
    /// Files are recorded after their sync.
    pub(super) is_durable: bool,
    /// Identifies the time since the machine was started.
    boot: Vec<u8>,
    /// The user, groups and capabilities of this process.
    user: Vec<u8>,
    /// The random number of this run. Also in place of a mount's number that a later mount may get
    /// (before Linux 6.8).
    pub(super) run: u64,
}

impl Keys {
    pub(super) fn new(number: u64, is_durable: bool) -> Keys {
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id");
        // Without it, each run counts as one after a crash.
        let boot = boot.unwrap_or_else(|_| random().to_le_bytes().to_vec());
        Keys { number, is_durable, boot, user: crate::sys::credentials(), run: random() }
    }

    fn hash(&self, parts: &[&[u8]]) -> u128 {
        let mut hasher = SipHasher24::new_with_keys(self.number, 0x6372_696e_676c_6521);
        for part in parts {
            hasher.write(&(part.len() as u64).to_le_bytes());
            hasher.write(part);
        }
        hasher.finish128().as_u128()
    }

    fn hash_numbers(&self, numbers: &[i64]) -> u64 {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.hash(&[&bytes]) as u64
    }

    /// Returns the key of a source of the command line.
    pub(super) fn of_command_line(&self, source: &[u8], target: &[u8]) -> u128 {
        self.hash(&[b"named", source, target])
    }

    /// Returns the key of a name in the directory with the key `parent`.
    pub(super) fn below(&self, parent: u128, name: &[u8]) -> u128 {
        self.hash(&[b"below", &parent.to_le_bytes(), name])
    }

    /// Returns the key of a source with several names, which share a copy.
    pub(super) fn of_file(&self, (device, inode): (u64, u64)) -> u128 {
        self.hash(&[b"file", &device.to_le_bytes(), &inode.to_le_bytes()])
    }

    /// Describes a source. `looked`: a time before `stat` was read, in seconds.
    pub(super) fn recorded(&self, key: u128, stat: &Stat, looked: i64) -> Recorded {
        let source = self.hash_numbers(&[
            stat.st_size,
            stat.st_mtime,
            stat.st_mtime_nsec as i64,
            stat.st_ctime,
            stat.st_ctime_nsec as i64,
            i64::from(stat.st_mode),
            i64::from(stat.st_uid),
            i64::from(stat.st_gid),
        ]);
        let inode_and_user = self.hash(&[&stat.st_ino.to_le_bytes(), &self.user]) as u64;
        let is_recent = stat.st_ctime.max(stat.st_mtime) >= looked - GRANULARITY;
        let size = stat.st_size as u64;
        Recorded { key, source, inode_and_user, size, is_recent, content: None }
    }

    /// Returns the fingerprint of a target. Without a sync it holds until the next start of the
    /// machine or the next mount: then data may be lost, although size and times are not.
    pub(super) fn target(&self, target: &Statx, is_durable: bool) -> u64 {
        let time = |time: &rustix::fs::StatxTimestamp| [time.tv_sec, i64::from(time.tv_nsec)];
        let ([m, mn], [c, cn]) = (time(&target.stx_mtime), time(&target.stx_ctime));
        let numbers = [
            target.stx_size as i64,
            target.stx_ino as i64,
            m,
            mn,
            c,
            cn,
            i64::from(target.stx_mode),
            i64::from(target.stx_uid),
            i64::from(target.stx_gid),
        ];
        let status = self.hash_numbers(&numbers);
        if is_durable {
            return status;
        }
        let is_unique = target.stx_mask & crate::sys::MNT_ID_UNIQUE.bits() != 0;
        let mount = if is_unique { target.stx_mnt_id } else { self.run };
        self.hash(&[&status.to_le_bytes(), &self.boot, &mount.to_le_bytes()]) as u64
    }

    /// Returns the record of a complete file; `None` if the target has another size than the
    /// source.
    pub(super) fn entry(&self, recorded: Recorded, target: &Statx) -> Option<FileEntry> {
        let Recorded { key, source, inode_and_user, size, is_recent, .. } = recorded;
        (target.stx_size == size).then(|| FileEntry {
            key,
            source,
            inode_and_user,
            target: self.target(target, self.is_durable),
            is_recent,
            is_durable: self.is_durable,
        })
    }
}

/// Returns a number that other processes cannot guess.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    fn file() -> (Stat, Statx) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = sys::c_string(std::os::unix::ffi::OsStrExt::as_bytes(file.path().as_os_str()));
        let stat = sys::stat_at(sys::CWD, &path, true).unwrap();
        (stat, sys::statx_at(sys::CWD, &path, true).unwrap())
    }

    #[test]
    fn source_that_may_change_unseen_is_recent() {
        let (stat, _) = file();
        let keys = Keys::new(1, false);
        let is_recent = |looked: i64| keys.recorded(0, &stat, looked).is_recent;
        assert!(is_recent(stat.st_ctime) && is_recent(stat.st_ctime + GRANULARITY));
        assert!(!is_recent(stat.st_ctime + GRANULARITY + 1));
    }

    #[test]
    fn each_part_of_the_status_counts() {
        let (stat, target) = file();
        let keys = Keys::new(1, true);
        let changes: [fn(&mut Stat); 8] = [
            |stat| stat.st_size += 1,
            |stat| stat.st_mtime += 1,
            |stat| stat.st_mtime_nsec += 1,
            |stat| stat.st_ctime += 1,
            |stat| stat.st_ctime_nsec += 1,
            |stat| stat.st_mode ^= 1,
            |stat| stat.st_uid += 1,
            |stat| stat.st_gid += 1,
        ];
        let source = |stat: &Stat| keys.recorded(0, stat, 0).source;
        for change in changes {
            let mut changed = stat;
            change(&mut changed);
            assert_ne!(source(&changed), source(&stat));
        }
        let changes: [fn(&mut Statx); 9] = [
            |target| target.stx_size += 1,
            |target| target.stx_ino += 1,
            |target| target.stx_mtime.tv_sec += 1,
            |target| target.stx_mtime.tv_nsec += 1,
            |target| target.stx_ctime.tv_sec += 1,
            |target| target.stx_ctime.tv_nsec += 1,
            |target| target.stx_mode ^= 1,
            |target| target.stx_uid += 1,
            |target| target.stx_gid += 1,
        ];
        for change in changes {
            let mut changed = target;
            change(&mut changed);
            assert_ne!(keys.target(&changed, true), keys.target(&target, true));
        }
    }

    #[test]
    fn inode_and_user_of_the_source_count() {
        let (stat, _) = file();
        let keys = Keys::new(1, true);
        let other_user = Keys { user: b"another".to_vec(), ..Keys::new(1, true) };
        let mut other_inode = stat;
        other_inode.st_ino += 1;
        let of = |keys: &Keys, stat: &Stat| keys.recorded(0, stat, 0).inode_and_user;
        assert_ne!(of(&keys, &stat), of(&keys, &other_inode));
        assert_ne!(of(&keys, &stat), of(&other_user, &stat));
        assert_eq!(of(&keys, &stat), of(&Keys::new(1, true), &stat));
    }

    #[test]
    fn unsynced_target_counts_until_the_next_mount() {
        let (_, target) = file();
        let keys = Keys::new(1, false);
        let rebooted = Keys { boot: b"another".to_vec(), ..Keys::new(1, false) };
        let mut remounted = target;
        remounted.stx_mnt_id += 1;
        let unsynced = keys.target(&target, false);
        assert_ne!(unsynced, keys.target(&remounted, false));
        assert_ne!(unsynced, rebooted.target(&target, false));
        // The kernel may give the mount's number to a later mount.
        let mut reusable = target;
        reusable.stx_mask &= !sys::MNT_ID_UNIQUE.bits();
        assert_ne!(keys.target(&reusable, false), Keys::new(1, false).target(&reusable, false));
        assert_eq!(keys.target(&target, false), Keys::new(1, false).target(&target, false));
        let synced = keys.target(&target, true);
        assert_eq!(synced, keys.target(&remounted, true));
        assert_eq!(synced, rebooted.target(&target, true));
    }

    #[test]
    fn names_with_other_borders_have_other_keys() {
        let keys = Keys::new(1, false);
        assert_ne!(keys.of_command_line(b"ab", b"c"), keys.of_command_line(b"a", b"bc"));
        assert_ne!(keys.below(1, b"name"), keys.below(2, b"name"));
        assert_ne!(keys.below(1, b"name"), Keys::new(2, false).below(1, b"name"));
        assert_ne!(keys.of_file((1, 2)), keys.of_file((2, 1)));
    }

    #[test]
    fn target_of_another_size_is_not_recorded() {
        let (stat, mut target) = file();
        let keys = Keys::new(1, false);
        let recorded = keys.recorded(7, &stat, 0);
        assert_eq!(keys.entry(recorded, &target).map(|entry| entry.key), Some(7));
        target.stx_size += 1;
        assert_eq!(keys.entry(recorded, &target), None);
    }
}
