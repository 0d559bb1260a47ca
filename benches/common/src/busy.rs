//! Measures how busy the machine is.

use std::time::{Duration, Instant};

/// Returns the share of all cores' time that was used during `span`.
pub fn share_over(span: Duration) -> f64 {
    let (before, idle_before) = ticks();
    std::thread::sleep(span);
    let (after, idle_after) = ticks();
    let (all, idle) = ((after - before).max(1), idle_after - idle_before);
    1.0 - idle as f64 / all as f64
}

/// Waits, for `patience` at most, until less than `limit` of the machine is in use. Returns whether
/// it is.
pub fn wait_until_quiet(limit: f64, patience: Duration) -> bool {
    let start = Instant::now();
    loop {
        if share_over(Duration::from_millis(250)) < limit {
            return true;
        }
        if start.elapsed() >= patience {
            return false;
        }
    }
}

/// Returns the sum of all cores' ticks, and of their idle ticks.
fn ticks() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/stat").expect("Linux has this file");
    let line = text.lines().next().expect("a line for all cores");
    let fields: Vec<u64> =
        line.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect();
    // The fields are user, nice, system, idle, iowait, …
    (fields.iter().sum(), fields[3] + fields[4])
}
