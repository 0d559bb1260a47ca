//! Checks that a run has read the content of the file, and written the blocks of its plan.

use super::job::{Job, LaneResult};
use super::plan::{Access, Limit, Plan};
use super::results::Run;
use super::strategies::Strategy;
use super::wal::Log;
use crate::content;
use crate::experiment::{self, Named};
use crate::rounds::Progress;
use crate::target::Target;
use cringle_report::failure::{Failure, fail};
use std::os::unix::fs::FileExt;

/// The number of written blocks that are read back.
const READ_BACK: usize = 2048;

/// Returns the first words of the plan's blocks: computed if the benchmark filled the file,
/// otherwise read once.
pub(super) fn first_words(
    plan: &Plan,
    target: &Target,
    progress: &Progress,
) -> Result<Vec<u64>, Failure> {
    if let Some(seed) = target.seed {
        let word = |a: &Access| content::word(seed, 0, a.offset / 8);
        return Ok(plan.accesses.iter().map(word).collect());
    }
    // In the order of the file, which rotating disks read fastest.
    let mut order: Vec<usize> = (0..plan.accesses.len()).collect();
    order.sort_by_key(|&index| plan.accesses[index].offset);
    let bar = progress.runs(order.len()).with_message("reading for the checksums");
    let mut words = vec![0; order.len()];
    let mut word = [0u8; 8];
    for (done, index) in order.into_iter().enumerate() {
        target.file.0.read_exact_at(&mut word, plan.accesses[index].offset)?;
        words[index] = u64::from_le_bytes(word);
        if done % 1024 == 0 {
            bar.set_position(done as u64);
        }
    }
    bar.finish_and_clear();
    Ok(words)
}

/// Checks every lane against the plan, or the log against its content. Returns the run's checksum.
pub(super) fn checksum(job: &Job, lanes: &[LaneResult]) -> Result<u64, Failure> {
    let name = job.setting.name();
    let found = lanes.iter().fold(0u64, |sum, lane_result| sum.wrapping_add(lane_result.checksum));
    if let Some(log) = &job.log {
        let verify =
            if job.setting.strategy == Strategy::Log { Log::verify_records } else { Log::verify };
        let (expected, commits) = verify(log, &job.target, &job.plan, job.generation)?;
        let ops: u64 = lanes.iter().map(|lane_result| lane_result.ops).sum();
        if (expected, commits) != (found, ops) {
            return fail(format!("`{name}` committed {ops} appends, but the log holds {commits}"));
        }
        return Ok(found);
    }
    let expected = lanes.iter().fold(0u64, |sum, lane_result| {
        sum.wrapping_add(job.plan.checksum(&lane_result.lane, lane_result.ops))
    });
    if found != expected {
        return fail(format!(
            "`{name}` did not read the content of the file: its checksum is {found:016x} instead \
             of {expected:016x} (or another program writes to the file)"
        ));
    }
    Ok(found)
}

/// Reads some of the written blocks back: each must have the number of this run.
pub(super) fn written(job: &Job, lanes: &[LaneResult]) -> Result<(), Failure> {
    if !job.writes || job.log.is_some() || job.plan.block < 16 {
        return Ok(());
    }
    let done = lanes
        .iter()
        .flat_map(|lane_result| lane_result.lane.clone().take(lane_result.ops as usize));
    let writes: Vec<Access> =
        done.map(|index| job.plan.accesses[index]).filter(|access| access.write).collect();
    let step = writes.len().div_ceil(READ_BACK).max(1);
    let mut block = [0u8; 16];
    for access in writes.iter().step_by(step) {
        job.target.file.0.read_exact_at(&mut block, access.offset)?;
        if content::generation(&block) != job.generation {
            let (name, offset) = (job.setting.name(), access.offset);
            return fail(format!("`{name}` did not write its block at offset {offset}"));
        }
    }
    Ok(())
}

/// Checks that all runs with the same operations have the same checksum.
pub(super) fn agreement(runs: &[Run], limit: Limit) -> Result<(), Failure> {
    // Runs that are limited by time differ in their number of operations. Each was checked against
    // the plan.
    let differ = experiment::disagreement(runs, |sample| sample.checksum);
    match differ.filter(|_| matches!(limit, Limit::Ops(_))) {
        None => Ok(()),
        Some([(other, expected), (setting, checksum)]) => fail(format!(
            "`{}` and `{}` read different data: checksums {checksum:016x} and {expected:016x}",
            setting.name(),
            other.name()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::job::Profile;
    use crate::disk::plan::{Direction, Shape};
    use crate::disk::results::Setting;
    use crate::disk::strategies::Outcome;
    use crate::latency::Sampling;
    use crate::meter::Gate;
    use crate::target::TargetSpec;
    use clap::ValueEnum;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    const BLOCK: usize = 512;

    fn spec() -> TargetSpec {
        TargetSpec {
            path: env!("CARGO_MANIFEST_DIR").into(),
            size: Some(64 << 10),
            block: BLOCK as u64,
            seed: 5,
            ..TargetSpec::default()
        }
    }

    fn job(strategy: Strategy, target: &Arc<Target>) -> Arc<Job> {
        let mut plan = Plan::new(&Shape {
            direction: Direction::Read,
            block: BLOCK,
            file_bytes: target.file_bytes,
            limit: Limit::Ops(300),
            seed: 9,
        });
        let words = first_words(&plan, target, &Progress::new(false)).unwrap();
        let mut words = words.into_iter();
        plan.expect(|_| words.next().unwrap());
        Arc::new(Job {
            setting: Setting {
                strategy,
                profile: Profile::Cached,
                queue_depth: 4,
                threads: 1,
                block: BLOCK,
                fixed: false,
            },
            plan: Arc::new(plan),
            target: Arc::clone(target),
            iopoll: false,
            writes: false,
            sampling: Sampling::EVERY,
            generation: 1,
            log: None,
            stop: AtomicBool::new(false),
            gate: Gate::new(strategy.parties(1)),
        })
    }

    fn checked(strategy: Strategy, target: &Arc<Target>) -> Result<u64, Failure> {
        let job = job(strategy, target);
        match strategy.run(&job).unwrap() {
            Outcome::Measured(all) => checksum(&job, &all),
            Outcome::Reported(_) => unreachable!("fio is left out"),
        }
    }

    #[test]
    fn every_strategy_detects_a_wrong_block() {
        let target = Arc::new(Target::prepare(&spec(), &Progress::new(false)).unwrap());
        let reads = |strategy: &Strategy| ![Strategy::Fio, Strategy::Log].contains(strategy);
        let ours = || Strategy::value_variants().iter().copied().filter(reads);
        let sums: Vec<u64> = ours().map(|s| checked(s, &target).unwrap()).collect();
        assert!(sums.iter().all(|sum| *sum == sums[0]), "{sums:x?}");
        let read = job(Strategy::Sync, &target).plan.accesses[7].offset;
        target.file.0.write_all_at(b"spoiled!", read).unwrap();
        for strategy in ours() {
            let failure = checked(strategy, &target).unwrap_err();
            assert!(failure.message.contains("checksum"), "{}: {failure}", strategy.name());
        }
    }

    #[test]
    fn a_foreign_file_is_read_for_its_checksums() {
        let mut target = Target::prepare(&spec(), &Progress::new(false)).unwrap();
        target.seed = None;
        target.file.0.write_all_at(b"whatever", 0).unwrap();
        assert!(checked(Strategy::Sync, &Arc::new(target)).is_ok());
    }
}
