//! The machine: kernel, processors, file system, device.
//!
//! A report names them, and a benchmark warns if they distort its figures (a file system in memory
//! is no disk).

pub mod cache;
pub mod cpus;
pub mod storage;

use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use storage::Storage;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub kernel: String,
    /// The processors that this process may use.
    pub cpus: usize,
    pub cpu_model: Option<String>,
    pub memory_bytes: Option<u64>,
    pub filesystem: String,
    pub device: String,
}

impl Machine {
    /// Describes the machine and `storage`.
    pub fn of(storage: &Storage) -> Machine {
        Machine {
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into()),
            cpus: cpus::allowed().len(),
            cpu_model: field("/proc/cpuinfo", "model name"),
            memory_bytes: field("/proc/meminfo", "MemTotal").and_then(|text| {
                let kib: u64 = text.split_whitespace().next()?.parse().ok()?;
                Some(kib << 10)
            }),
            filesystem: storage.filesystem.clone(),
            device: storage.describe_device(),
        }
    }
}

/// Returns the trimmed text of a small file; `None` if it is unreadable or empty. The names of
/// processes and control groups in it may have any bytes.
pub fn read(path: impl AsRef<Path>) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim();
    (!text.is_empty()).then(|| text.into())
}

/// Returns the value of the first line `name : value`.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let (_, value) =
        text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_string())
}
