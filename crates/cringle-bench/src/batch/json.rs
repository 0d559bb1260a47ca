//! The JSON of `bench batch`.

use super::{Comparison, Measured};
use cringle_report::SCHEMA;
use serde_json::{Value, json};

pub(super) fn of(comparison: &Comparison) -> Value {
    let measured = comparison.median();
    let fio = comparison.fio_iops();
    let via = comparison.via.as_ref();
    json!({
        "schema": SCHEMA,
        "benchmark": "batch",
        "machine": comparison.machine,
        "level": comparison.level_name(),
        "file_bytes": comparison.bytes,
        "cached": comparison.cached,
        "warm": comparison.warm,
        "workers": comparison.workers,
        "submitters": comparison.submitters,
        "result": batch_sample(measured),
        "quantiles_us": comparison.latencies.to_json(),
        "fio_iops": fio,
        "ratios": {
            "iops_to_fio": fio.map(|fio| measured.iops() / fio),
            "via_iops_to_rust": via.and_then(|via| via.ratio(&comparison.rounds)),
            "via_cpu_per_op_to_rust": via.and_then(|via| via.cpu_ratio(&comparison.rounds)),
        },
        "samples": comparison.rounds.iter().map(batch_sample).collect::<Vec<_>>(),
        "fio_samples": comparison.fio,
        "via": via.map(|via| json!({
            "name": via.via.name(),
            "samples": via.rounds.iter().map(batch_sample).collect::<Vec<_>>(),
        })),
        "notes": comparison.notes,
    })
}

/// What a program of `--via` does not report is null.
fn batch_sample(measured: &Measured) -> Value {
    let per_op = |value: Option<u64>| Some(value? as f64 / measured.ops.max(1) as f64);
    json!({
        "ops": measured.ops,
        "seconds": measured.usage.seconds,
        "iops": measured.iops(),
        "allocations": measured.allocations,
        "allocations_per_op": per_op(measured.allocations),
        "allocated_bytes": measured.allocated_bytes,
        "allocated_bytes_per_op": per_op(measured.allocated_bytes),
        "user_seconds": measured.usage.user_seconds,
        "system_seconds": measured.usage.system_seconds,
        "context_switches": measured.usage.context_switches,
        "p999_us": measured.p999_us,
        "max_us": measured.max_us,
    })
}
