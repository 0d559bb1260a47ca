//! The report of `bench db`: the table of the rungs, their sentences, plots and JSON.

use super::rungs::Rung;
use super::{DbFindings, Line, RungSample, sentences};
use crate::experiment::{Named, Notes, Report, plot, words};
use cringle_report::machine::Machine;
use cringle_report::page::{Column, Rows, Section, cell, ratio_cell};
use cringle_report::units::{count, figure};
use serde_json::{Value, json};

pub(super) fn of(findings: &DbFindings<'_>, machine: Machine, notes: Notes) -> Report {
    let (args, lines) = (findings.args, &findings.lines);
    let cpu = |sample: &RungSample| sample.usage.cpu_seconds() * 1e6 / args.transactions as f64;
    let rate = |sample: &RungSample| findings.rate(sample);
    let sections = vec![Section {
        title: sentences::title(findings),
        sentences: sentences::all(findings),
        plots: vec![
            plot("Transactions a second", "tx/s", lines, rate),
            plot("CPU time of a transaction", "µs", lines, cpu),
        ],
        table: Some(table(findings)),
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

fn table(findings: &DbFindings<'_>) -> Rows {
    let rate = |sample: &RungSample| findings.rate(sample);
    let range = |line: &Line| {
        let (slowest, fastest) = line.range(rate);
        format!("{}–{}", count(slowest), count(fastest))
    };
    let each = |line: &Line, of: fn(&RungSample) -> f64| figure(findings.per_transaction(line, of));
    let calls = |line: &Line| match line.samples.iter().all(|sample| sample.calls.is_some()) {
        true => each(line, |sample| sample.calls.unwrap_or(0) as f64),
        false => "–".into(),
    };
    let columns: [Column<'_, Line>; 10] = [
        ("rung", &|line| line.subject.name()),
        ("tx/s", &|line| count(line.figure(rate))),
        ("slowest–fastest", &range),
        ("× posix", &|line| ratio_cell(findings.ratio(line.subject, Rung::Posix))),
        ("CPU µs/tx", &|line| each(line, |sample| sample.usage.cpu_seconds() * 1e6)),
        ("calls/tx", &calls),
        ("reads/tx", &|line| each(line, |sample| sample.counts.reads as f64)),
        ("writes/tx", &|line| each(line, |sample| sample.counts.writes as f64)),
        ("p50 µs", &|line| cell(line.latencies.quantile_us(0.5))),
        ("p99 µs", &|line| cell(line.latencies.quantile_us(0.99))),
    ];
    Rows::of(&columns, &findings.lines)
}

fn run(findings: &DbFindings<'_>, line: &Line, sample: &RungSample) -> Value {
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

fn median(findings: &DbFindings<'_>, line: &Line) -> Value {
    json!({
        "rung": line.subject.name(),
        "transactions_per_second": line.figure(|one| findings.rate(one)),
        "iops": line.figure(RungSample::iops),
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
