//! The report of `bench http`: tables, plots and JSON.

use super::{Block, Findings, Line, Sample, plot, sentences};
use cringle_report::failure::Failure;
use cringle_report::page::{Page, Rows, Section, cell, ratio_cell};
use cringle_report::stats::range;
use cringle_report::units::count;
use cringle_report::{Outputs, SCHEMA};
use serde_json::{Value, json};

const HEADER: [&str; 11] = [
    "server",
    "requests/s",
    "lowest–highest",
    "CPU µs",
    "× uring",
    "p50 µs",
    "p99 µs",
    "p99.9 µs",
    "ctx/req",
    "calls/req",
    "errors",
];

pub(super) fn write(findings: &Findings, outputs: &Outputs) -> Result<(), Failure> {
    outputs.write(&value(findings), &page(findings))
}

fn page(findings: &Findings) -> Page {
    let mut sections: Vec<Section> =
        findings.blocks.iter().map(|block| section(block, findings)).collect();
    // If numbers of workers are compared, that comparison comes first.
    sections.splice(0..0, plot::by_workers(&findings.blocks));
    Page {
        bench: "bench http".into(),
        title: "What a request costs, by server".into(),
        machine: findings.machine.clone(),
        sections,
        notes: findings.notes.clone(),
    }
}

fn section(block: &Block, findings: &Findings) -> Section {
    Section {
        title: sentences::title(block, findings),
        sentences: sentences::sentences(block),
        plots: vec![
            plot::rounds(block, "CPU time of the server per request", "µs", Sample::cpu_us),
            plot::rounds(block, "Requests per second", "requests/s", Sample::rate),
            plot::rounds(block, "99th percentile of the latency", "µs", |sample| sample.p99_us),
            plot::latencies("Latency of a request", block),
        ],
        table: Some(Rows::new(&HEADER, block.lines.iter().map(|line| cells(block, line)))),
        ..Section::default()
    }
}

fn cells(block: &Block, line: &Line) -> Vec<String> {
    let rates = line.samples.iter().map(|sample| sample.requests_per_second);
    let (lowest, highest) = range(rates).unwrap_or((f64::NAN, f64::NAN));
    vec![
        line.label(),
        count(line.rate()),
        format!("{}–{}", count(lowest), count(highest)),
        cell(line.median(Sample::cpu_us)),
        ratio_cell(sentences::to_ring(block, line)),
        cell(line.median(|sample| sample.p50_us)),
        cell(line.median(|sample| sample.p99_us)),
        cell(line.median(|sample| sample.p999_us)),
        cell(line.median(Sample::context_switches)),
        cell(line.syscalls),
        count(line.samples.iter().map(|sample| sample.errors as f64).sum()),
    ]
}

fn value(findings: &Findings) -> Value {
    let of_lines = |of: fn(&Block, &Line) -> Vec<Value>| {
        let blocks = findings.blocks.iter();
        blocks
            .flat_map(move |block| block.lines.iter().flat_map(move |line| of(block, line)))
            .collect::<Vec<_>>()
    };
    json!({
        "schema": SCHEMA,
        "benchmark": "http",
        "machine": findings.machine,
        "client": findings.client,
        "response_bytes": findings.response_bytes,
        "commands": findings.programs.iter().map(|program| {
            json!({ "server": program.name, "command": program.text() })
        }).collect::<Vec<_>>(),
        "runs": of_lines(|block, line| {
            line.samples.iter().map(|sample| run(block, line, sample)).collect()
        }),
        "medians": of_lines(|block, line| vec![median(block, line)]),
        "words": findings.blocks.iter().flat_map(sentences::sentences).collect::<Vec<_>>(),
        "notes": findings.notes,
    })
}

fn run(block: &Block, line: &Line, sample: &Sample) -> Value {
    json!({
        "server": line.label(),
        "workers": block.cell.workers,
        "connections": block.cell.connections,
        "keepalive": block.cell.keepalive,
        "requests": sample.requests,
        "requests_per_second": sample.requests_per_second,
        "cpu_us_per_request": sample.cpu_us(),
        "p50_us": sample.p50_us,
        "p99_us": sample.p99_us,
        "p999_us": sample.p999_us,
        "context_switches_per_request": sample.context_switches(),
        "load_busy": sample.load_busy(),
        "load_cpu_us_per_request": sample.load.map(|load| load.cpu_us_per_request),
        "errors": sample.errors,
    })
}

fn median(block: &Block, line: &Line) -> Value {
    json!({
        "server": line.label(),
        "workers": block.cell.workers,
        "connections": block.cell.connections,
        "keepalive": block.cell.keepalive,
        "requests_per_second": line.rate(),
        "cpu_us_per_request": line.median(Sample::cpu_us),
        "p50_us": line.median(|sample| sample.p50_us),
        "p99_us": line.median(|sample| sample.p99_us),
        "p999_us": line.median(|sample| sample.p999_us),
        "context_switches_per_request": line.median(Sample::context_switches),
        "syscalls_per_request": line.syscalls,
        "quantiles_us": line.latencies.to_json(),
        "ratios": { "cpu_to_uring": sentences::to_ring(block, line) },
    })
}
