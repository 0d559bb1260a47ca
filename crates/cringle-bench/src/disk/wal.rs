//! The log of the `wal` profile: assigns each append its offset, in order of arrival, and verifies
//! the appends after the run.

use super::plan::{Access, Plan, term};
use crate::content;
use crate::target::{Kind, Target};
use cringle::block;
use cringle_report::failure::{Failure, fail};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The end of the log.
pub(super) struct Log(AtomicU64);

impl Log {
    /// Empties the log. On a block device, which cannot be truncated, it starts at offset 0.
    pub(super) fn begin(target: &Target) -> Result<Log, Failure> {
        if target.kind != Kind::BlockDevice {
            target.file.0.set_len(0)?;
        }
        target.file.0.sync_all()?;
        Ok(Log(AtomicU64::new(0)))
    }

    /// Moves the planned access to the end of the log, and the end behind it.
    #[inline]
    pub(super) fn append(&self, planned: Access, block: usize) -> Access {
        Access { offset: self.0.fetch_add(block as u64, Relaxed), ..planned }
    }

    /// Returns the appends of the run, each with the first word of its block.
    fn appends(&self, target: &Target, block: usize) -> impl Iterator<Item = (Access, u64)> {
        let seed = target.seed.unwrap_or(0);
        let append =
            move |offset| (Access { offset, write: true }, content::word(seed, 0, offset / 8));
        (0..self.0.load(Relaxed)).step_by(block).map(append)
    }

    /// Returns the expected checksum and the number of the appends.
    fn expected(&self, target: &Target, block: usize) -> (u64, u64) {
        let add = |(sum, commits): (u64, u64), (access, word): (Access, u64)| {
            (sum.wrapping_add(term(word, &access)), commits + 1)
        };
        self.appends(target, block).fold((0, 0), add)
    }

    /// Reads the log back: it must hold the appends of this run without a gap. Returns the expected
    /// checksum and the number of the appends.
    pub(super) fn verify(
        &self,
        target: &Target,
        plan: &Plan,
        generation: u64,
    ) -> Result<(u64, u64), Failure> {
        let mut block = vec![0u8; plan.block];
        for (Access { offset, .. }, word) in self.appends(target, plan.block) {
            target.file.0.read_exact_at(&mut block, offset)?;
            if (content::head(&block), content::generation(&block)) != (word, generation) {
                return fail(format!("the log has a wrong block at offset {offset}"));
            }
        }
        Ok(self.expected(target, plan.block))
    }

    /// As [`verify`](Self::verify), for a log of the library, which chooses the order of the
    /// records.
    pub(super) fn verify_records(
        &self,
        target: &Target,
        plan: &Plan,
        generation: u64,
    ) -> Result<(u64, u64), Failure> {
        let mut found = Vec::new();
        let read = |offset, record: &[u8]| {
            if (record.len(), content::generation(record)) != (plan.block, generation) {
                let text = format!("the log has a wrong record at offset {offset}");
                return Err(io::Error::other(text));
            }
            found.push(content::head(record));
            Ok(())
        };
        block::Log::open(target.file.own_name(), read)?;
        let mut expected: Vec<u64> =
            self.appends(target, plan.block).map(|(_, word)| word).collect();
        found.sort_unstable();
        expected.sort_unstable();
        if found != expected {
            return fail("the log has other records than those that were appended");
        }
        Ok(self.expected(target, plan.block))
    }
}
