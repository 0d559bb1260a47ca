//! `fio` with the same settings. It chooses its own offsets, so it has no checksum to compare.

use crate::disk::job::Job;
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
        format!("--direct={}", u8::from(job.setting.profile.is_direct())),
        format!("--filename={}", job.target.file.name_for_others()),
        format!("--rw={}", if job.writes { "randwrite" } else { "randread" }),
        "--norandommap".into(),
        format!("--numjobs={}", job.setting.threads),
        format!("--size={}", job.target.file_bytes),
        format!("--randseed={}", job.generation),
    ];
    all.extend(fio::queue(job.setting.queue_depth));
    all.extend(length(job, job.setting.threads));
    if job.setting.fixed {
        all.extend(["--registerfiles".into(), "--fixedbufs".into()]);
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
