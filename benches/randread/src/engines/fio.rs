//! fio, if it is installed: the same number of reads, at its fastest settings. It draws its own
//! offsets, so there is no checksum. Its CPU time excludes the kernel's workers.

use crate::job::{Outcome, Task};
use common::file;
use serde_json::Value;
use std::process::{Command, Stdio};

pub(crate) fn is_missing() -> bool {
    let version = Command::new("fio").arg("--version").stdout(Stdio::null()).status();
    !version.is_ok_and(|status| status.success())
}

/// Runs fio; `fixed` registers files and buffers.
pub(crate) fn run(task: &Task, fixed: bool) -> Result<Outcome, String> {
    let output = command(task, fixed).output().map_err(|e| format!("cannot start fio: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    // Warnings may precede the JSON.
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').map_or("", |at| &text[at..]);
    let report: Value = serde_json::from_str(json).map_err(|e| format!("fio's JSON: {e}"))?;
    let job = &report["jobs"][0];
    let number = |value: &Value| value.as_f64().ok_or("fio's JSON lacks a figure".to_owned());
    let operations = number(&job["read"]["total_ios"])?;
    let seconds = number(&job["job_runtime"])? / 1e3;
    let share = |key: &str| Ok::<_, String>(number(&job[key])? / 100.0 * seconds);
    Ok(Outcome {
        operations: operations as usize,
        seconds,
        iops: number(&job["read"]["iops"])?,
        user_us_per_op: share("usr_cpu")? * 1e6 / operations,
        system_us_per_op: share("sys_cpu")? * 1e6 / operations,
        context_switches_per_op: number(&job["ctx"])? / operations,
        checksum: None,
    })
}

fn command(task: &Task, fixed: bool) -> Command {
    let size = file::size_of(&task.file).expect("the file exists");
    let batch = task.depth.min(32);
    let mut command = Command::new("fio");
    command
        .arg("--name=randread")
        .arg("--rw=randread")
        .arg("--ioengine=io_uring")
        .arg("--norandommap")
        .arg("--invalidate=0")
        .arg("--gtod_reduce=1")
        .arg("--output-format=json")
        .arg(format!("--filename={}", task.file.display()))
        .arg(format!("--direct={}", u8::from(task.direct)))
        .arg(format!("--bs={}", task.block))
        .arg(format!("--size={size}"))
        .arg(format!("--io_size={}", task.operations * task.block))
        .arg(format!("--randseed={}", task.seed))
        .arg(format!("--iodepth={}", task.depth))
        .arg(format!("--iodepth_batch_submit={batch}"))
        .arg("--iodepth_batch_complete_min=1")
        .arg(format!("--iodepth_batch_complete_max={batch}"));
    if fixed {
        command.args(["--registerfiles", "--fixedbufs"]);
    }
    command
}
