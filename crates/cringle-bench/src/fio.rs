//! Runs fio, the reference among disk benchmarks, and parses its report.

use crate::meter::Usage;
use cringle_report::interrupt;
use serde_json::Value;
use std::io;
use std::process::Command;

/// Whether fio is installed.
pub(crate) fn is_installed() -> bool {
    let output = Command::new("fio").arg("--version").output();
    output.is_ok_and(|output| output.status.success() && !output.stdout.trim_ascii().is_empty())
}

/// Returns the options that all jobs have which keep a queue of this depth full.
pub(crate) fn queue(depth: usize) -> [String; 5] {
    [
        "--ioengine=io_uring".into(),
        format!("--iodepth={depth}"),
        "--iodepth_batch_submit=32".into(),
        "--iodepth_batch_complete_min=1".into(),
        "--iodepth_batch_complete_max=32".into(),
    ]
}

/// The figures of a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    pub(crate) ops: u64,
    pub(crate) usage: Usage,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
}

/// Runs fio with these options, and returns the figures of its job.
pub(crate) fn run(options: impl IntoIterator<Item = String>) -> io::Result<Report> {
    let mut command = Command::new("fio");
    command.args(["--name=cringle", "--output-format=json", "--thread"]).args(options);
    report(&execute(&mut command)?)
}

/// Runs fio and returns the first job of its report.
pub(crate) fn execute(command: &mut Command) -> io::Result<Value> {
    let output = interrupt::output_of(command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let reason = errors.lines().chain(text.lines()).find(|line| line.contains("fio:"));
        let reason = reason.unwrap_or("it gave no reason");
        return Err(io::Error::other(format!("fio failed ({}): {reason}", output.status)));
    }
    // Warnings may precede the JSON.
    let start = text.find('{').unwrap_or(0);
    let value: Value = serde_json::from_str(&text[start..])
        .map_err(|error| io::Error::other(format!("fio's output is not JSON: {error}")))?;
    match value.pointer("/jobs/0") {
        Some(job) => Ok(job.clone()),
        None => Err(io::Error::other("fio's output contains no job")),
    }
}

/// Extracts the figures of a job, reads and writes together.
pub(crate) fn report(job: &Value) -> io::Result<Report> {
    let number = |path: &str| job.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
    let ops = number("/read/total_ios") + number("/write/total_ios");
    // The time follows from the rate: fio rounds its runtimes to whole milliseconds.
    let rate = number("/read/iops") + number("/write/iops");
    if ops == 0.0 || rate == 0.0 {
        return Err(io::Error::other("fio reports no operations"));
    }
    // fio reports CPU in percent of the wall time summed over the jobs.
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
    fn figures_are_extracted() {
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
