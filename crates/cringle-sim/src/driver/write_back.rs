//! Write-backs of a file that fail, as on Linux: the pages that are lost, and the handles that
//! report it.
//!
//! The kernel marks pages that it could not write as clean. So no later sync writes them, and the
//! disk keeps the old bytes, but reads return the new ones. A page that is written to again is
//! dirty, and the next sync writes all of it.
//!
//! Each open file description that exists when a write-back fails reports it once (`errseq_t`). One
//! that is opened later reports it only if no other has reported it before.
//!
//! The number of the last failure that a description knows is kept in the description itself, as
//! the signal of `F_SETSIG`, which has no effect on memory files. So clones need no imitation.

use super::rng::Rng;
use cringle_sys as sys;
use std::collections::BTreeMap;
use std::os::fd::RawFd;

/// The unit in which the kernel writes back and drops the bytes of a file.
const PAGE_BYTES: usize = 4096;
/// The number of failures that a description's signal tells apart, from 1. 0 marks a description
/// that the simulation has not opened.
const MARKS: u64 = 64;

/// See the module.
#[derive(Default)]
pub(super) struct WriteBack {
    /// The pages that the kernel has dropped, with their bytes in the cache at that time.
    dropped: BTreeMap<usize, Vec<u8>>,
    /// The number of failures.
    failures: u64,
    /// Whether no description has reported the last failure yet.
    is_unseen: bool,
}

impl WriteBack {
    /// A description was opened.
    pub(super) fn opened(&self, fd: RawFd) {
        let known = self.failures - u64::from(self.is_unseen);
        sys::simulated::set_description_mark(fd, mark_of(known));
    }

    /// Returns whether a sync through this description fails because of an earlier failure.
    pub(super) fn reports(&mut self, fd: RawFd) -> bool {
        let (known, mark) = (sys::simulated::description_mark(fd), mark_of(self.failures));
        let reports = known != 0 && known != mark;
        if reports {
            sys::simulated::set_description_mark(fd, mark);
            self.is_unseen = false;
        }
        reports
    }

    /// A write-back fails: some of the pages that differ from the disk's are dropped.
    pub(super) fn fail(&mut self, now: &[u8], durable: &[u8], rng: &mut Rng) {
        self.keep_dropped(now);
        self.failures += 1;
        self.is_unseen = true;
        let is_dirty = |&page: &usize| page_of(now, page) != page_of(durable, page);
        let pages = (0..now.len().div_ceil(PAGE_BYTES)).filter(is_dirty);
        let dirty: Vec<usize> = pages.filter(|page| !self.dropped.contains_key(page)).collect();
        if dirty.is_empty() {
            return;
        }
        // One of them, or all, or each by itself.
        let (one, lost_of_4) = (rng.below(dirty.len() as u64) as usize, rng.below(5));
        for (n, page) in dirty.into_iter().enumerate() {
            if n == one || rng.below(4) < lost_of_4 {
                self.dropped.insert(page, page_of(now, page));
            }
        }
    }

    /// These bytes were written, so that their pages are dirty.
    pub(super) fn written(&mut self, bytes: std::ops::Range<u64>) {
        let page_bytes = PAGE_BYTES as u64;
        let pages = bytes.start / page_bytes..bytes.end.div_ceil(page_bytes);
        self.dropped.retain(|&page, _| !pages.contains(&(page as u64)));
    }

    /// The file ends here now.
    pub(super) fn cut(&mut self, len: u64) {
        self.dropped.retain(|&page, _| (page as u64) < len.div_ceil(PAGE_BYTES as u64));
    }

    /// Forgets the pages that were changed since they were dropped, by whichever call.
    pub(super) fn keep_dropped(&mut self, now: &[u8]) {
        self.dropped.retain(|&page, bytes| page_of(now, page) == *bytes);
    }

    /// Returns the bytes that would be on the disk if every page but the dropped ones were written.
    pub(super) fn without_dropped(&self, mut now: Vec<u8>, durable: &[u8]) -> Vec<u8> {
        for (&page, bytes) in &self.dropped {
            if page_of(&now, page) == *bytes {
                let first = (page * PAGE_BYTES).min(now.len());
                let end = (first + PAGE_BYTES).min(now.len());
                let count = end - first;
                now[first..end].copy_from_slice(&page_of(durable, page)[..count]);
            }
        }
        now
    }
}

fn mark_of(failures: u64) -> u8 {
    (failures % MARKS) as u8 + 1
}

/// Returns a page, with zeros after the end of the file.
fn page_of(bytes: &[u8], page: usize) -> Vec<u8> {
    let first = (page * PAGE_BYTES).min(bytes.len());
    let mut found = bytes[first..(first + PAGE_BYTES).min(bytes.len())].to_vec();
    found.resize(PAGE_BYTES, 0);
    found
}
