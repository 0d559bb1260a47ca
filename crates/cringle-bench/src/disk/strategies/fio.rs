//! `fio` with the same settings. It chooses its own offsets, so it has no checksum to compare.

use crate::disk::job::{Job, Profile};
use crate::disk::plan::Limit;
use crate::fio::{self, Report};
use std::io;

pub(super) fn run(job: &Job) -> io::Result<Report> {
    // fio has its own clock. Releases the thread that would stop a run by time.
    drop(job.gate.party());
    fio::run(arguments(job))
}

fn arguments(job: &Job) -> Vec<String> {
    let mut all = vec![
        "--group_reporting".into(),
        "--lat_percentiles=1".into(),
        "--percentile_list=50:99".into(),
        // The caller has prepared the page cache.
        "--invalidate=0".into(),
        "--allow_file_create=0".into(),
        format!("--bs={}", job.plan.block),
        format!("--direct={}", u8::from(job.cell.profile.is_direct())),
        format!("--filename={}", job.target.file.name_for_others()),
        format!("--rw={}", pattern(job)),
        format!("--randseed={}", job.generation),
    ];
    if job.cell.profile == Profile::Wal {
        all.extend(committers(job));
    } else {
        all.extend(queue(job));
    }
    all
}

fn pattern(job: &Job) -> &'static str {
    let reads = job.plan.accesses.iter().any(|access| !access.write);
    match (job.cell.profile, reads, job.writes) {
        (Profile::Wal, ..) => "write",
        (_, true, true) => "randrw",
        (_, false, _) => "randwrite",
        _ => "randread",
    }
}

fn queue(job: &Job) -> Vec<String> {
    let mut all = vec!["--norandommap".into(), format!("--numjobs={}", job.cell.threads)];
    all.extend(fio::queue(job.cell.queue_depth));
    all.push(format!("--size={}", job.target.file_bytes));
    all.extend(length(job, job.cell.threads));
    if job.cell.fixed {
        all.extend(["--registerfiles".into(), "--fixedbufs".into()]);
    }
    all
}

fn committers(job: &Job) -> Vec<String> {
    let count = job.cell.queue_depth * job.cell.threads;
    let mut all = vec![
        "--ioengine=psync".into(),
        "--fdatasync=1".into(),
        format!("--numjobs={count}"),
        // The log stays empty before the run. Each job appends to a part of its own.
        "--create_on_open=1".into(),
        "--fallocate=none".into(),
    ];
    let each = (job.plan.accesses.len() / count).max(1) * job.plan.block;
    all.extend([format!("--size={each}"), format!("--offset_increment={each}")]);
    if let Limit::Seconds(seconds) = job.plan.limit {
        all.extend([format!("--runtime={seconds}"), "--time_based".into()]);
    }
    all
}

fn length(job: &Job, jobs: usize) -> Vec<String> {
    match job.plan.limit {
        Limit::Ops(ops) => vec![format!("--io_size={}", (ops / jobs).max(1) * job.plan.block)],
        // fio accepts whole seconds, or milliseconds with a unit.
        Limit::Seconds(seconds) => {
            vec![format!("--runtime={:.0}ms", seconds * 1e3), "--time_based".into()]
        }
    }
}
