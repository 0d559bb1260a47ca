//! Copies that do not fill the page cache (`--uncached`).
//!
//! A copied file is in the page cache twice: as the source and as the copy. A copy of more than
//! that displaces what other programs read again and again. With `RWF_DONTCACHE` (Linux 6.14), the
//! kernel drops a page that a call brought in: after a read at once, after a write when the page is
//! on the disk. What was in the cache before stays.

use crate::choices::When;
use crate::regular::CopyError;
use crate::sys;
use crate::transfer::Transfer;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// The bytes of one read and of one write. With 1 MiB a copy takes a fifth longer.
const BLOCK_BYTES: usize = 4 << 20;
/// Smaller files are copied through the cache, unless `--uncached=always` is given.
const LARGE_FILE_BYTES: u64 = BLOCK_BYTES as u64;

/// What a worker keeps for its uncached copies.
#[derive(Default)]
pub(crate) struct Uncached {
    /// Empty until it is needed.
    buffer: Vec<u8>,
    /// The devices whose files cannot be read, or written, past the cache.
    cached_reads: Vec<u64>,
    cached_writes: Vec<u64>,
}

/// The bytes that a copy may bring into the page cache.
#[derive(Default)]
pub(crate) struct CacheShare(OnceLock<u64>);

impl CacheShare {
    /// Returns whether a file of `bytes` is copied past the cache, after `copied` bytes of others.
    pub(crate) fn is_exceeded(&self, when: When, bytes: u64, copied: u64) -> bool {
        match when {
            When::Never => false,
            When::Always => true,
            When::Auto => {
                bytes >= LARGE_FILE_BYTES
                    && copied.saturating_add(bytes) > *self.0.get_or_init(cache_share)
            }
        }
    }
}

/// Returns a quarter of the available memory: the pages of sources and copies fill half of it then.
/// (Also, the kernel slows down whoever has more unwritten data than a fifth of it, so that a
/// larger copy goes at the pace of the disk in any case.)
fn cache_share() -> u64 {
    // Linux 6.14 and 6.15 have the flag, but got corrections of it later.
    let is_mature = kernel().is_some_and(|version| version >= (6, 16));
    if !is_mature {
        return u64::MAX;
    }
    let limits = [sys::memory_figure("MemAvailable:"), cgroup_limit(Path::new("/sys/fs/cgroup"))];
    limits.into_iter().flatten().min().map_or(u64::MAX, |available| available / 4)
}

fn kernel() -> Option<(u32, u32)> {
    version(&fs::read_to_string("/proc/sys/kernel/osrelease").ok()?)
}

/// Parses the first two numbers of `6.18.3-generic`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Returns the least limit of this process's memory: a container's, for example. (Version 2 of
/// control groups.)
fn cgroup_limit(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let directory = root.join(group);
    let all = directory.ancestors().take_while(|ancestor| ancestor.starts_with(root));
    // A group without a limit has the word `max`.
    all.filter_map(|group| fs::read_to_string(group.join("memory.max")).ok()?.trim().parse().ok())
        .min()
}

impl Transfer<'_, '_> {
    /// Copies past the cache until a read returns 0, or `length` bytes are copied, or neither file
    /// system can: then the rest is to be copied in another way. Returns the bytes copied.
    pub(crate) fn copy_uncached(&mut self, length: u64) -> Result<u64, CopyError> {
        let mut state = std::mem::take(&mut self.worker.uncached);
        let copied = self.copy_with(&mut state, length);
        self.worker.uncached = state;
        copied
    }

    fn copy_with(&mut self, state: &mut Uncached, length: u64) -> Result<u64, CopyError> {
        let (source, target) = self.devices;
        let mut reads = !state.cached_reads.contains(&source);
        let mut writes = !state.cached_writes.contains(&target);
        let mut copied = 0;
        while copied < length && (reads || writes) {
            self.check_stop()?;
            if state.buffer.is_empty() {
                // Of pages that are zero already.
                state.buffer = vec![0; BLOCK_BYTES];
            }
            let part = usize::try_from(length - copied).unwrap_or(usize::MAX).min(BLOCK_BYTES);
            let block = &mut state.buffer[..part];
            let was = (reads, writes);
            let n = sys::read_uncached(self.from, block, &mut reads).map_err(CopyError::Read)?;
            if n == 0 {
                break;
            }
            sys::write_all_uncached(self.to, &block[..n], &mut writes).map_err(CopyError::Write)?;
            if was.0 && !reads {
                state.cached_reads.push(source);
            }
            if was.1 && !writes {
                state.cached_writes.push(target);
            }
            copied += n as u64;
            self.show(n as u64);
        }
        self.worker.method.offload = "avoided";
        self.worker.method.uncached = Some(match (reads, writes) {
            (true, true) => "yes",
            (true, false) => "reads",
            (false, true) => "writes",
            (false, false) => "unsupported",
        });
        Ok(copied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_uncached_if_it_exceeds_the_share() {
        const MIB: u64 = 1 << 20;
        let share = CacheShare(OnceLock::from(100 * MIB));
        for (when, bytes, copied, uncached) in [
            (When::Auto, 100 * MIB, 0, false),
            (When::Auto, 100 * MIB + 1, 0, true),
            (When::Auto, 10 * MIB, 90 * MIB, false),
            (When::Auto, 10 * MIB, 91 * MIB, true),
            (When::Auto, LARGE_FILE_BYTES, u64::MAX, true),
            (When::Auto, LARGE_FILE_BYTES - 1, u64::MAX, false),
            (When::Never, u64::MAX, u64::MAX, false),
            (When::Always, 1, 0, true),
        ] {
            let answer = share.is_exceeded(when, bytes, copied);
            assert_eq!(answer, uncached, "{when:?}: {bytes} after {copied}");
        }
    }

    #[test]
    fn kernel_versions_are_parsed() {
        for (text, parsed) in [
            ("6.18.3-generic\n", Some((6, 18))),
            ("6.9", Some((6, 9))),
            ("10.0.0", Some((10, 0))),
            ("6.14+", Some((6, 14))),
            ("6", None),
            ("", None),
            ("unknown", None),
        ] {
            assert_eq!(version(text), parsed, "{text:?}");
        }
    }

    #[test]
    fn the_least_limit_of_the_control_groups_counts() {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let Some(group) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else { return };
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join(group);
        fs::create_dir_all(own.join("below")).unwrap();
        assert_eq!(cgroup_limit(root.path()), None);
        fs::write(own.join("memory.max"), "max\n").unwrap();
        assert_eq!(cgroup_limit(root.path()), None);
        fs::write(own.join("memory.max"), "4096\n").unwrap();
        fs::write(own.join("below/memory.max"), "1\n").unwrap();
        assert_eq!(cgroup_limit(root.path()), Some(4096));
        if !group.is_empty() {
            fs::write(root.path().join("memory.max"), "2048\n").unwrap();
            assert_eq!(cgroup_limit(root.path()), Some(2048));
        }
    }
}
