//! fio's random reads, if it is installed: the rate of the disk.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// The operations in the kernel at once: as many as Cringle's store has.
const DEPTH: usize = 192;

pub(crate) fn is_missing() -> bool {
    let version = Command::new("fio").arg("--version").stdout(Stdio::null()).status();
    !version.is_ok_and(|status| status.success())
}

/// Returns the time of this number of reads, in milliseconds.
pub(crate) fn milliseconds(path: &Path, reads: usize, bytes: u64, direct: bool) -> f64 {
    let mut command = Command::new("fio");
    command.args(["--name=objects", "--rw=randread", "--ioengine=io_uring", "--norandommap"]);
    command.args(["--invalidate=0", "--gtod_reduce=1", "--output-format=json", "--randrepeat=0"]);
    command.args(["--iodepth_batch_submit=32", "--iodepth_batch_complete_max=32"]);
    command
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--direct={}", u8::from(direct)))
        .arg(format!("--bs={bytes}"))
        .arg(format!("--io_size={}", reads as u64 * bytes))
        .arg(format!("--iodepth={DEPTH}"));
    let output = command.output().expect("fio starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Warnings may precede the JSON.
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').map_or("", |at| &text[at..]);
    let report: Value = serde_json::from_str(json).expect("fio prints JSON");
    let rate = report["jobs"][0]["read"]["iops"].as_f64().expect("fio prints the rate");
    reads as f64 / rate * 1e3
}
