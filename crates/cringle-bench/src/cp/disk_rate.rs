//! What `fio` says the disk can do: the time that a copy would take if reading and writing at
//! once, half and half, were all there is to it.

use super::args::Tree;
use super::trees::Shape;
use crate::fio;
use serde::Serialize;
use serde_json::Value;
use std::io;
use std::path::Path;
use std::process::Command;

const BIGGEST_FILE: u64 = 256 << 20;
const BIGGEST_BLOCK: u64 = 1 << 20;
const LEAST_BLOCK: u64 = 4 << 10;
/// Files below this size lie scattered, and are compared with random accesses.
const SCATTERED: u64 = 64 << 10;

#[derive(Clone, Debug, Serialize)]
pub(super) struct DiskRate {
    pub tree: Tree,
    /// `randrw` or `rw`.
    pub pattern: &'static str,
    pub block_bytes: u64,
    pub read_bytes_per_second: f64,
    pub write_bytes_per_second: f64,
}

impl DiskRate {
    pub(super) fn seconds(&self, bytes: u64) -> f64 {
        bytes as f64 / self.read_bytes_per_second.min(self.write_bytes_per_second)
    }
}

/// Asks fio, with a file in `place`.
pub(super) fn measure(tree: Tree, shape: &Shape, place: &Path) -> io::Result<DiskRate> {
    let pattern = if shape.file_bytes < SCATTERED { "randrw" } else { "rw" };
    let block = shape.file_bytes.clamp(LEAST_BLOCK, BIGGEST_BLOCK) / LEAST_BLOCK * LEAST_BLOCK;
    let size = (shape.bytes().min(BIGGEST_FILE) / block * block).max(64 * block);
    let mut file = std::ffi::OsString::from("--filename=");
    // A colon separates names there.
    file.push(place.join(format!("fio-{}", tree.name())).to_string_lossy().replace(':', "\\:"));
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
