//! The summary as JSON. Durations are in nanoseconds; points in time count from the start of the
//! trace.

use super::summary::Summary;
use cringle_report::SCHEMA;
use serde_json::{Value, json};

/// The number of parts of the trace for which a mean queue depth is reported.
const PARTS: usize = 64;

pub(super) fn of(summary: &Summary) -> Value {
    let workers = summary.workers.iter().map(|worker| {
        json!({
            "name": worker.name,
            "enters": worker.enters,
            "running_ns": worker.running_ns,
            "kernel_ns": worker.kernel_ns,
            "asleep_ns": worker.asleep_ns,
            "moves": worker.moves,
            "mean_depth": worker.depth.mean(),
            "most_depth": worker.depth.most(),
        })
    });

    let ops = summary.ops.iter().map(|op| {
        json!({
            "name": op.name,
            "count": op.ns.len(),
            "p50_ns": op.ns.value_at_quantile(0.5),
            "p99_ns": op.ns.value_at_quantile(0.99),
            "max_ns": op.ns.max(),
        })
    });
    json!({
        "schema": SCHEMA,
        "command": "trace",
        "program": summary.program,
        "ns": summary.ns(),
        "events": summary.events,
        "lost": summary.lost,
        "cut_short": summary.cut_short,
        "workers": workers.collect::<Vec<_>>(),
        "fibers": summary.fibers,
        "hidden_fibers": summary.hidden,
        "waits": summary.waits,
        "ops": ops.collect::<Vec<_>>(),
        "inline": { "answered": summary.inline[0], "in_vain": summary.inline[1] },
        "depth": {
            "ns": summary.ns() as f64 / PARTS as f64,
            "means": summary.depths(PARTS),
        },
    })
}
