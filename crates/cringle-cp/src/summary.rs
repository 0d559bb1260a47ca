//! What was done, as numbers: `--json`, and the last words of an interrupted copy.

use crate::workers::Counters;
use cringle_command as report;
use cringle_command::units;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}

pub(crate) fn json(counters: &Counters, elapsed: Duration, status: u8) -> Value {
    let (bytes, seconds) = (get(&counters.bytes), elapsed.as_secs_f64());
    json!({
        "schema": 1,
        "command": "cp",
        "status": status,
        "files": get(&counters.files),
        "directories": get(&counters.directories),
        "links_and_special_files": get(&counters.others),
        "bytes": bytes,
        "cloned_files": get(&counters.cloned),
        "failures": get(&counters.failures),
        "seconds": seconds,
        "mib_per_second": units::mib(bytes as f64) / seconds.max(1e-9),
    })
}

pub(crate) fn save(
    path: &std::ffi::OsStr,
    value: &Value,
) -> Result<(), cringle_command::failure::Failure> {
    report::save(std::path::Path::new(path), value)
}

pub(crate) fn so_far(counters: &Counters) -> String {
    format!(
        "{} files, {} directories, {} were copied",
        units::count(get(&counters.files) as f64),
        units::count(get(&counters.directories) as f64),
        units::size(get(&counters.bytes))
    )
}
