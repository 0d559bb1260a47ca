//! The same for programs. The schema has a number; fields are added, never changed.

use crate::bench::batch::{Comparison, Measured};
use crate::bench::disk::Findings;
use crate::bench::latency::Latencies;
use crate::bench::results::{Run, Sample, beside};
use crate::bench::strategies::Strategy;
use serde_json::{Map, Value, json};

pub(crate) const SCHEMA: u32 = 1;

pub(crate) fn disk(findings: &Findings) -> Value {
    json!({
        "schema": SCHEMA,
        "benchmark": "disk",
        "machine": findings.machine,
        "rw": findings.direction,
        "runs": findings.runs.iter().map(|run| disk_run(run, &findings.runs)).collect::<Vec<_>>(),
        "words": super::words::groups(findings)
            .into_iter()
            .flat_map(|group| group.sentences)
            .collect::<Vec<_>>(),
        "notes": findings.notes,
    })
}

fn disk_run(run: &Run, all: &[Run]) -> Value {
    let ratio = |strategy| Some(run.iops() / beside(all, &run.cell, strategy)?.iops());
    let ring = beside(all, &run.cell, Strategy::Uring);
    json!({
        "strategy": run.cell.strategy,
        "profile": run.cell.profile,
        "queue_depth": run.cell.queue_depth,
        "threads": run.cell.threads,
        "block_bytes": run.cell.block,
        "fixed": run.cell.fixed,
        "ops": run.ops() as u64,
        "seconds": run.seconds(),
        "iops": run.iops(),
        "bytes_per_second": run.bytes_per_second(),
        "cpu_us_per_op": run.cpu_us_per_op(),
        "context_switches_per_op": run.context_switches_per_op(),
        "p50_us": run.p50_us(),
        "p99_us": run.p99_us(),
        "quantiles_us": quantiles(&run.latencies),
        "checksum": run.checksum().map(hex),
        "ratios": {
            "iops_to_sync": ratio(Strategy::Sync),
            "iops_to_uring": ratio(Strategy::Uring),
            "iops_to_fio": ratio(Strategy::Fio),
            "cpu_to_uring": ring.map(|ring| run.cpu_us_per_op() / ring.cpu_us_per_op()),
        },
        "samples": run.samples.iter().map(disk_sample).collect::<Vec<_>>(),
    })
}

fn disk_sample(sample: &Sample) -> Value {
    json!({
        "ops": sample.ops,
        "seconds": sample.usage.seconds,
        "iops": sample.iops(),
        "user_seconds": sample.usage.user_seconds,
        "system_seconds": sample.usage.system_seconds,
        "cpu_us_per_op": sample.cpu_us_per_op(),
        "context_switches_per_op": sample.context_switches_per_op(),
        "p50_us": sample.p50_us,
        "p99_us": sample.p99_us,
        "checksum": sample.checksum.map(hex),
    })
}

/// `{"0.5": 380.1, …}`; of nothing that was timed, nothing.
pub(crate) fn quantiles(latencies: &Latencies) -> Value {
    let told = latencies.quantiles_us().into_iter();
    told.map(|(share, us)| (share.to_string(), us.into())).collect::<Map<_, _>>().into()
}

/// As text: a number of 64 bits would lose its low ones in most readers of JSON.
fn hex(checksum: u64) -> String {
    format!("{checksum:016x}")
}

pub(crate) fn batch(comparison: &Comparison) -> Value {
    let measured = comparison.median();
    let fio = comparison.fio_iops();
    json!({
        "schema": SCHEMA,
        "benchmark": "batch",
        "machine": comparison.machine,
        "level": comparison.level_name(),
        "file_bytes": comparison.bytes,
        "cached": comparison.cached,
        "workers": comparison.workers,
        "submitters": comparison.submitters,
        "result": batch_sample(measured),
        "quantiles_us": quantiles(&comparison.latencies),
        "fio_iops": fio,
        "ratios": { "iops_to_fio": fio.map(|fio| measured.iops() / fio) },
        "samples": comparison.rounds.iter().map(batch_sample).collect::<Vec<_>>(),
        "fio_samples": comparison.fio,
        "notes": comparison.notes,
    })
}

fn batch_sample(measured: &Measured) -> Value {
    let per_op = |value: u64| value as f64 / measured.ops.max(1) as f64;
    json!({
        "ops": measured.ops,
        "seconds": measured.usage.seconds,
        "iops": measured.iops(),
        "allocations": measured.allocated.allocations,
        "allocations_per_op": per_op(measured.allocated.allocations),
        "allocated_bytes": measured.allocated.bytes,
        "allocated_bytes_per_op": per_op(measured.allocated.bytes),
        "user_seconds": measured.usage.user_seconds,
        "system_seconds": measured.usage.system_seconds,
        "context_switches": measured.usage.context_switches,
        "p999_us": measured.p999_us,
        "max_us": measured.max_us,
    })
}
