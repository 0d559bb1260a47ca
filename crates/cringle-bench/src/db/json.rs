//! The JSON of `bench db`.

use super::{Findings, Line, Sample, sentences};
use crate::db::rungs::Rung;
use cringle_report::SCHEMA;
use serde_json::{Value, json};

pub(super) fn of(findings: &Findings) -> Value {
    let lines = &findings.lines;
    let runs = |line: &Line| line.samples.iter().map(|one| run(findings, line, one)).collect();
    json!({
        "schema": SCHEMA,
        "benchmark": "db",
        "machine": findings.machine,
        "tree_bytes": findings.tree_bytes,
        "tree_levels": findings.tree.inner_levels() + 1,
        "rows": findings.tree.rows(),
        "pool_bytes": findings.pool_bytes,
        "fibers": findings.fibers,
        "evict_batch": findings.evict_batch,
        "durable": findings.durable,
        "transactions": findings.transactions,
        "seed": findings.seed,
        "checksum": format!("{:016x}", findings.checksum),
        "runs": lines.iter().flat_map::<Vec<Value>, _>(runs).collect::<Vec<_>>(),
        "medians": lines.iter().map(|line| median(findings, line)).collect::<Vec<_>>(),
        "fio_iops": findings.fio_iops(),
        "fio_samples": findings.fio,
        "words": sentences::all(findings),
        "notes": findings.notes,
    })
}

fn run(findings: &Findings, line: &Line, sample: &Sample) -> Value {
    let counts = &sample.counts;
    json!({
        "rung": line.rung.name(),
        "seconds": sample.usage.seconds,
        "transactions_per_second": findings.transactions as f64 / sample.usage.seconds,
        "reads": counts.reads,
        "writes": counts.writes,
        "evictions": counts.evictions,
        "page_waits": counts.page_waits,
        "frame_waits": counts.frame_waits,
        "system_calls": sample.calls,
        "user_s": sample.usage.user_seconds,
        "system_s": sample.usage.system_seconds,
        "context_switches": sample.usage.context_switches,
    })
}

fn median(findings: &Findings, line: &Line) -> Value {
    json!({
        "rung": line.rung.name(),
        "transactions_per_second": findings.rate(line),
        "iops": findings.iops(line),
        "cpu_us_per_transaction":
            findings.per_transaction(line, |sample| sample.usage.cpu_seconds() * 1e6),
        "quantiles_us": line.latencies.to_json(),
        "ratios": {
            "rate_to_posix": findings.ratio(line.rung, Rung::Posix),
            "rate_to_base": line.rung.base().and_then(|base| findings.ratio(line.rung, base)),
            "iops_to_fio": findings.ratio_to_fio(line),
        },
    })
}
