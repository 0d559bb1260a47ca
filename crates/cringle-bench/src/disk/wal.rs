//! The logs of the `wal` profile: assigns each append its offset, in order of arrival, and verifies
//! the appends after the run.

use super::plan::{Access, Plan, term};
use crate::content;
use crate::target::{Kind, Target};
use cringle::block;
use cringle_report::failure::{Failure, fail};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The ends of the logs, one for each file.
pub(super) struct Log(Vec<AtomicU64>);

impl Log {
    /// Empties the logs. On a block device, which cannot be truncated, the log starts at offset 0.
    pub(super) fn begin(target: &Target) -> Result<Log, Failure> {
        for file in &target.files {
            if target.kind != Kind::BlockDevice {
                file.0.set_len(0)?;
            }
            file.0.sync_all()?;
        }
        Ok(Log(target.files.iter().map(|_| AtomicU64::new(0)).collect()))
    }

    /// Moves the planned access to the end of its log, and the end behind it.
    #[inline]
    pub(super) fn append(&self, planned: Access, block: usize) -> Access {
        let offset = self.0[planned.file as usize].fetch_add(block as u64, Relaxed);
        Access { offset, ..planned }
    }

    /// Reads the logs back: each must hold the appends of this run without a gap. Returns the
    /// expected checksum and the number of the appends.
    pub(super) fn verify(
        &self,
        target: &Target,
        plan: &Plan,
        generation: u64,
    ) -> Result<(u64, u64), Failure> {
        let mut block = vec![0u8; plan.block];
        let (mut sum, mut commits) = (0u64, 0u64);
        for (number, (file, end)) in target.files.iter().zip(&self.0).enumerate() {
            for offset in (0..end.load(Relaxed)).step_by(plan.block) {
                let access = Access { offset, file: number as u32, write: true };
                file.0.read_exact_at(&mut block, offset)?;
                let expected = content::word(target.seed.unwrap_or(0), access.file, offset / 8);
                let found = (content::head(&block), content::generation(&block));
                if found != (expected, generation) {
                    return fail(format!("the log has a wrong block at offset {offset}"));
                }
                sum = sum.wrapping_add(term(expected, &access));
                commits += 1;
            }
        }
        Ok((sum, commits))
    }

    /// As [`verify`](Self::verify), for logs of the library, which choose the order of the records.
    pub(super) fn verify_records(
        &self,
        target: &Target,
        plan: &Plan,
        generation: u64,
    ) -> Result<(u64, u64), Failure> {
        let (mut sum, mut commits) = (0u64, 0u64);
        for (number, (file, end)) in target.files.iter().zip(&self.0).enumerate() {
            let mut found = Vec::new();
            let read = |offset, record: &[u8]| {
                if (record.len(), content::generation(record)) != (plan.block, generation) {
                    let text = format!("the log has a wrong record at offset {offset}");
                    return Err(io::Error::other(text));
                }
                found.push(content::head(record));
                Ok(())
            };
            block::Log::open(file.own_name(), read)?;
            let mut expected = Vec::new();
            for offset in (0..end.load(Relaxed)).step_by(plan.block) {
                let access = Access { offset, file: number as u32, write: true };
                let word = content::word(target.seed.unwrap_or(0), access.file, offset / 8);
                sum = sum.wrapping_add(term(word, &access));
                expected.push(word);
            }
            commits += expected.len() as u64;
            found.sort_unstable();
            expected.sort_unstable();
            if found != expected {
                return fail("the log has other records than those that were appended");
            }
        }
        Ok((sum, commits))
    }
}
