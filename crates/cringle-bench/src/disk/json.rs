//! The JSON of `bench disk`.

use super::Findings;
use super::results::{Run, Sample, beside};
use super::strategies::Strategy;
use cringle_report::SCHEMA;
use serde_json::{Value, json};

pub(super) fn of(findings: &Findings) -> Value {
    json!({
        "schema": SCHEMA,
        "benchmark": "disk",
        "machine": findings.machine,
        "rw": findings.direction,
        "load_average": findings.load,
        "runs": findings.runs.iter().map(|run| disk_run(run, &findings.runs)).collect::<Vec<_>>(),
        "words": super::sentences::groups(findings)
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
        "spread": run.spread(),
        "bytes_per_second": run.bytes_per_second(),
        "cpu_us_per_op": run.cpu_us_per_op(),
        "context_switches_per_op": run.context_switches_per_op(),
        "p50_us": run.p50_us(),
        "p99_us": run.p99_us(),
        "quantiles_us": run.latencies.to_json(),
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

/// Formats a checksum as text, because most JSON parsers lose the low bits of a 64-bit number.
fn hex(checksum: u64) -> String {
    format!("{checksum:016x}")
}
