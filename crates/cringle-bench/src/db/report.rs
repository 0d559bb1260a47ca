//! The report of `bench db`: the table of the rungs, their sentences, and plots.

use super::rungs::Rung;
use super::{Findings, Line, Sample, json, sentences};
use cringle_report::Outputs;
use cringle_report::failure::Failure;
use cringle_report::page::{Page, Rows, Section, cell, ratio_cell};
use cringle_report::plot::{Plot, Row};
use cringle_report::stats::range;
use cringle_report::units::{count, figure};

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

pub(super) fn write(findings: &Findings, outputs: &Outputs) -> Result<(), Failure> {
    outputs.write(&json::of(findings), &page(findings))
}

fn page(findings: &Findings) -> Page {
    let cpu = |sample: &Sample| sample.usage.cpu_seconds() * 1e6 / findings.transactions as f64;
    let rate = |sample: &Sample| findings.transactions as f64 / sample.usage.seconds;
    Page {
        bench: "bench db".into(),
        title: "What each step from pread to registered buffers gives a storage engine".into(),
        machine: findings.machine.clone(),
        sections: vec![Section {
            title: sentences::title(findings),
            sentences: sentences::all(findings),
            plots: vec![
                plot(findings, "Transactions a second", "tx/s", rate),
                plot(findings, "CPU time of a transaction", "µs", cpu),
            ],
            table: Some(Rows::new(&HEADER, findings.lines.iter().map(|line| row(findings, line)))),
            ..Section::default()
        }],
        notes: findings.notes.clone(),
    }
}

fn plot(findings: &Findings, title: &str, unit: &str, of: impl Fn(&Sample) -> f64) -> Plot {
    let row = |line: &Line| Row {
        label: line.rung.name().into(),
        samples: line.samples.iter().map(&of).collect(),
    };
    Plot::rows(title, unit, findings.lines.iter().map(row).collect())
}

fn row(findings: &Findings, line: &Line) -> Vec<String> {
    let rates = line.samples.iter().map(|one| findings.transactions as f64 / one.usage.seconds);
    let (slowest, fastest) = range(rates).unwrap_or((f64::NAN, f64::NAN));
    let each = |of: fn(&Sample) -> f64| figure(findings.per_transaction(line, of));
    let calls = line.samples.iter().all(|sample| sample.calls.is_some());
    vec![
        line.rung.name().into(),
        count(findings.rate(line)),
        format!("{}–{}", count(slowest), count(fastest)),
        ratio_cell(findings.ratio(line.rung, Rung::Posix)),
        each(|sample| sample.usage.cpu_seconds() * 1e6),
        if calls { each(|sample| sample.calls.unwrap_or(0) as f64) } else { "–".into() },
        each(|sample| sample.counts.reads as f64),
        each(|sample| sample.counts.writes as f64),
        cell(line.latencies.quantile_us(0.5)),
        cell(line.latencies.quantile_us(0.99)),
    ]
}
