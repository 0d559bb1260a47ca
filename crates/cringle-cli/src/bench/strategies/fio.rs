//! `fio`: the reference of the trade, run as a child with the same settings.
//!
//! It takes its own offsets (`norandommap`, the same seed) and so has no checksum to compare.

use super::Report;
use crate::bench::job::{Job, Profile};
use crate::bench::meter::Usage;
use crate::bench::plan::Limit;
use crate::interrupt;
use serde_json::Value;
use std::io;
use std::process::Command;

/// The version line of an installed fio.
pub(crate) fn installed() -> Option<String> {
    let output = Command::new("fio").arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
    (output.status.success() && !text.is_empty()).then_some(text)
}

pub(super) fn run(job: &Job) -> io::Result<Report> {
    // The orchestra may wait for a clock; fio has its own.
    drop(job.gate.party());
    let json = execute(Command::new("fio").args(arguments(job)))?;
    report(&json)
}

/// Runs fio and gives its first group's figures.
pub(crate) fn execute(command: &mut Command) -> io::Result<Value> {
    let output = interrupt::output_of(command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let said = errors.lines().chain(text.lines()).find(|line| line.contains("fio:"));
        let said = said.unwrap_or("it gave no reason");
        return Err(io::Error::other(format!("fio failed ({}): {said}", output.status)));
    }
    // Warnings may come before the JSON.
    let start = text.find('{').unwrap_or(0);
    let value: Value = serde_json::from_str(&text[start..])
        .map_err(|error| io::Error::other(format!("fio's output is no JSON: {error}")))?;
    match value.pointer("/jobs/0") {
        Some(job) => Ok(job.clone()),
        None => Err(io::Error::other("fio's output names no job")),
    }
}

fn arguments(job: &Job) -> Vec<String> {
    let total = job.target.file_bytes * job.target.files.len() as u64;
    let mut all = vec![
        "--name=cringle".into(),
        "--output-format=json".into(),
        "--group_reporting".into(),
        "--thread".into(),
        "--lat_percentiles=1".into(),
        "--percentile_list=50:99".into(),
        // Who prepares the cache is the caller.
        "--invalidate=0".into(),
        "--allow_file_create=0".into(),
        format!("--bs={}", job.plan.block),
        format!("--direct={}", u8::from(job.profile.direct())),
        format!("--filename={}", job.target.names_for_others()),
        format!("--rw={}", pattern(job)),
        format!("--randseed={}", job.generation),
    ];
    if job.profile == Profile::Wal {
        all.extend(committers(job));
    } else {
        all.extend(queue(job, total));
    }
    if job.pinning.on() && job.threads <= job.pinning.cpus().len() {
        let cpus: Vec<_> = job.pinning.cpus()[..job.threads].iter().map(usize::to_string).collect();
        all.push(format!("--cpus_allowed={}", cpus.join(",")));
        all.push("--cpus_allowed_policy=split".into());
    }
    all
}

fn pattern(job: &Job) -> &'static str {
    let reads = job.plan.accesses.iter().any(|access| !access.write);
    match (job.profile, reads, job.writes) {
        (Profile::Wal, ..) => "write",
        (Profile::BufferedSeq, true, true) => "rw",
        (Profile::BufferedSeq, false, _) => "write",
        (Profile::BufferedSeq, ..) => "read",
        (_, true, true) => "randrw",
        (_, false, _) => "randwrite",
        _ => "randread",
    }
}

fn queue(job: &Job, total: u64) -> Vec<String> {
    let mut all = vec![
        "--ioengine=io_uring".into(),
        format!("--iodepth={}", job.queue_depth),
        "--iodepth_batch_submit=32".into(),
        "--iodepth_batch_complete_min=1".into(),
        "--iodepth_batch_complete_max=32".into(),
        "--norandommap".into(),
        format!("--numjobs={}", job.threads),
    ];
    if job.profile == Profile::BufferedSeq {
        // Each job a stretch of its own, as our threads have.
        let block = job.plan.block as u64;
        let each = (total / job.threads as u64 / block * block).max(block);
        all.extend([format!("--size={each}"), format!("--offset_increment={each}")]);
    } else {
        all.push(format!("--size={total}"));
    }
    all.extend(length(job, job.threads));
    if job.fixed {
        all.extend(["--registerfiles".into(), "--fixedbufs".into()]);
    }
    if job.writes && job.profile == Profile::BufferedSeq {
        all.push("--end_fsync=1".into());
    }
    all
}

fn committers(job: &Job) -> Vec<String> {
    let count = job.queue_depth * job.threads;
    let mut all = vec![
        "--ioengine=psync".into(),
        "--fdatasync=1".into(),
        format!("--numjobs={count}"),
        // The log is empty: it must not be laid out before. Each appends to a part of its own.
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
        // fio takes whole seconds, or milliseconds with their unit.
        Limit::Seconds(seconds) => {
            vec![format!("--runtime={:.0}ms", seconds * 1e3), "--time_based".into()]
        }
    }
}

/// Reads a job's figures: reads and writes together.
pub(crate) fn report(job: &Value) -> io::Result<Report> {
    let number = |path: &str| job.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
    let ops = number("/read/total_ios") + number("/write/total_ios");
    // Rates, for its runtimes are rounded to whole milliseconds in other places too.
    let rate = number("/read/iops") + number("/write/iops");
    if ops == 0.0 || rate == 0.0 {
        return Err(io::Error::other("fio reports no operations"));
    }
    // CPU is in percent of the jobs' own wall time, which is summed over the jobs.
    let cpu = |name: &str| number(name) / 100.0 * number("/job_runtime") / 1e3;
    let side = if number("/read/total_ios") > 0.0 { "read" } else { "write" };
    let latency = |percentile: &str| {
        let path = format!("/{side}/lat_ns/percentile/{percentile}");
        job.pointer(&path).and_then(Value::as_f64).map(|ns| ns / 1e3)
    };
    Ok(Report {
        ops: ops as u64,
        usage: Usage {
            seconds: ops / rate,
            user_seconds: cpu("/usr_cpu"),
            system_seconds: cpu("/sys_cpu"),
            context_switches: number("/ctx") as u64,
        },
        p50_us: latency("50.000000"),
        p99_us: latency("99.000000"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fios_figures_are_read() {
        let job = json!({
            "job_runtime": 500, "usr_cpu": 10.0, "sys_cpu": 50.0, "ctx": 42,
            "read": {"total_ios": 40000, "iops": 80000.0,
                "lat_ns": {"percentile": {"50.000000": 380000, "99.000000": 910000}}},
            "write": {"total_ios": 0, "iops": 0.0}
        });
        let report = report(&job).unwrap();
        assert_eq!((report.ops, report.usage.context_switches), (40000, 42));
        assert!((report.usage.seconds - 0.5).abs() < 1e-9);
        assert!((report.usage.cpu_seconds() - 0.3).abs() < 1e-9);
        assert_eq!((report.p50_us, report.p99_us), (Some(380.0), Some(910.0)));
    }

    #[test]
    fn a_report_without_operations_is_an_error() {
        assert!(report(&json!({"read": {"total_ios": 0}})).is_err());
    }
}
