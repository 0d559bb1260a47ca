//! Measures with fio how fast the disk reads and writes at the same time, half of each: the limit
//! for a copy.

use super::args::Tree;
use super::trees::Shape;
use crate::experiment::Named;
use crate::fio;
use serde::Serialize;
use serde_json::Value;
use std::io;
use std::path::Path;
use std::process::Command;

/// The largest file that fio uses.
pub(super) const FILE_BYTES: u64 = 256 << 20;
const LARGEST_BLOCK: u64 = 1 << 20;
const SMALLEST_BLOCK: u64 = 4 << 10;
/// Files smaller than this are scattered over the disk, and are compared with random accesses.
const SCATTERED: u64 = 64 << 10;

#[derive(Clone, Debug, Serialize)]
pub(super) struct DiskRate {
    pub(super) tree: Tree,
    /// `randrw` or `rw`.
    pub(super) pattern: &'static str,
    pub(super) block_bytes: u64,
    pub(super) read_bytes_per_second: f64,
    pub(super) write_bytes_per_second: f64,
}

impl DiskRate {
    /// Returns the time for this number of bytes.
    pub(super) fn seconds(&self, bytes: u64) -> f64 {
        bytes as f64 / self.read_bytes_per_second.min(self.write_bytes_per_second)
    }
}

/// Runs fio with a file in `directory`.
pub(super) fn measure(tree: Tree, shape: &Shape, directory: &Path) -> io::Result<DiskRate> {
    let pattern = if shape.file_bytes < SCATTERED { "randrw" } else { "rw" };
    let block = shape.file_bytes.clamp(SMALLEST_BLOCK, LARGEST_BLOCK);
    let block = block / SMALLEST_BLOCK * SMALLEST_BLOCK;
    let size = (shape.bytes().min(FILE_BYTES) / block * block).max(64 * block);
    let mut file = std::ffi::OsString::from("--filename=");
    // In this option a colon separates several names.
    file.push(directory.join(format!("fio-{}", tree.name())).to_string_lossy().replace(':', "\\:"));
    let job = fio::execute(
        Command::new("fio")
            .args(["--name=cringle", "--output-format=json", "--ioengine=io_uring", "--thread"])
            .args(["--direct=1", "--iodepth=32", "--runtime=3", "--time_based"])
            .arg(file)
            .arg(format!("--rw={pattern}"))
            .arg(format!("--bs={block}"))
            .arg(format!("--size={size}")),
    )?;
    let rate = |side: &str| {
        let path = format!("/{side}/bw_bytes");
        job.pointer(&path).and_then(Value::as_f64).filter(|rate| *rate > 0.0)
    };
    match (rate("read"), rate("write")) {
        (Some(read), Some(write)) => Ok(DiskRate {
            tree,
            pattern,
            block_bytes: block,
            read_bytes_per_second: read,
            write_bytes_per_second: write,
        }),
        _ => Err(io::Error::other("fio reports no rates")),
    }
}
