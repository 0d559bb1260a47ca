//! The report of `bench db`: the table of the rungs, their sentences, plots and JSON.

use super::rungs::Rung;
use super::{Findings, Line, Sample, sentences};
use crate::experiment::{Named, Notes, Report, plot, words};
use cringle_report::machine::Machine;
use cringle_report::page::{Rows, Section, cell, ratio_cell};
use cringle_report::units::{count, figure};
use serde_json::{Value, json};

const HEADER: [&str; 10] = [
    "rung",
    "tx/s",
    "slowest–fastest",
    "× posix",
    "CPU µs/tx",
    "calls/tx",
    "reads/tx",
    "writes/tx",
    "p50 µs",
    "p99 µs",
];

pub(super) fn of(findings: &Findings<'_>, machine: Machine, notes: Notes) -> Report {
    let (args, lines) = (findings.args, &findings.lines);
    let cpu = |sample: &Sample| sample.usage.cpu_seconds() * 1e6 / args.transactions as f64;
    let rate = |sample: &Sample| findings.rate(sample);
    let sections = vec![Section {
        title: sentences::title(findings),
        sentences: sentences::all(findings),
        plots: vec![
            plot("Transactions a second", "tx/s", lines, rate),
            plot("CPU time of a transaction", "µs", lines, cpu),
        ],
        table: Some(Rows::new(&HEADER, lines.iter().map(|line| row(findings, line)))),
        ..Section::default()
    }];
    let runs = |line: &Line| line.samples.iter().map(|one| run(findings, line, one)).collect();
    let fields = json!({
        "tree_bytes": args.tree,
        "tree_levels": findings.tree.inner_levels() + 1,
        "rows": findings.tree.rows(),
        "pool_bytes": args.pool_bytes(),
        "fibers": args.fibers,
        "evict_batch": args.evict_batch,
        "durable": args.durable,
        "transactions": args.transactions,
        "seed": args.seed,
        "checksum": format!("{:016x}", findings.checksum),
        "runs": lines.iter().flat_map::<Vec<Value>, _>(runs).collect::<Vec<_>>(),
        "medians": lines.iter().map(|line| median(findings, line)).collect::<Vec<_>>(),
        "fio_iops": findings.fio_iops(),
        "fio_samples": findings.fio,
        "words": words(&sections),
    });
    let title = "What each step from pread to registered buffers gives a storage engine";
    Report::new("db", title, machine, sections, notes, fields)
}

fn row(findings: &Findings<'_>, line: &Line) -> Vec<String> {
    let rate = |sample: &Sample| findings.rate(sample);
    let (slowest, fastest) = line.range(rate);
    let each = |of: fn(&Sample) -> f64| figure(findings.per_transaction(line, of));
    let calls = line.samples.iter().all(|sample| sample.calls.is_some());
    vec![
        line.subject.name(),
        count(line.figure(rate)),
        format!("{}–{}", count(slowest), count(fastest)),
        ratio_cell(findings.ratio(line.subject, Rung::Posix)),
        each(|sample| sample.usage.cpu_seconds() * 1e6),
        if calls { each(|sample| sample.calls.unwrap_or(0) as f64) } else { "–".into() },
        each(|sample| sample.counts.reads as f64),
        each(|sample| sample.counts.writes as f64),
        cell(line.latencies.quantile_us(0.5)),
        cell(line.latencies.quantile_us(0.99)),
    ]
}

fn run(findings: &Findings<'_>, line: &Line, sample: &Sample) -> Value {
    let counts = &sample.counts;
    json!({
        "rung": line.subject.name(),
        "seconds": sample.usage.seconds,
        "transactions_per_second": findings.rate(sample),
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

fn median(findings: &Findings<'_>, line: &Line) -> Value {
    json!({
        "rung": line.subject.name(),
        "transactions_per_second": line.figure(|one| findings.rate(one)),
        "iops": line.figure(Sample::iops),
        "cpu_us_per_transaction":
            findings.per_transaction(line, |sample| sample.usage.cpu_seconds() * 1e6),
        "quantiles_us": line.latencies.to_json(),
        "ratios": {
            "rate_to_posix": findings.ratio(line.subject, Rung::Posix),
            "rate_to_base": line.subject.base().and_then(|base| findings.ratio(line.subject, base)),
            "iops_to_fio": findings.ratio_to_fio(line),
        },
    })
}
