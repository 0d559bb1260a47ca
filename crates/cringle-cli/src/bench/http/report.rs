//! The tables, and the same for programs.

use super::{Block, Findings, Line, Sample, words};
use crate::failure::Failure;
use crate::report::{self, json, table};
use crate::units::{count, figure};
use serde_json::{Value, json};
use std::path::Path;

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

pub(super) fn tell(findings: &Findings, json: Option<&Path>) -> Result<(), Failure> {
    if let Some(path) = json {
        report::save(path, &value(findings))?;
    }
    if report::is_stdout(json) { Ok(()) } else { report::print(&text(findings)) }
}

fn text(findings: &Findings) -> String {
    let mut out = table::machine(&findings.machine);
    for block in &findings.blocks {
        out.push_str(&format!("\n{}\n{}\n", words::title(block, findings), lines(block)));
        for sentence in words::sentences(block) {
            out.push_str(&report::words::wrapped(&sentence, ""));
        }
    }
    for note in &findings.notes {
        out.push_str(&report::words::wrapped(note, "note: "));
    }
    out
}

fn lines(block: &Block) -> String {
    table::figures(&HEADER, block.lines.iter().map(|line| cells(block, line)))
}

fn cells(block: &Block, line: &Line) -> Vec<String> {
    let rates = || line.samples.iter().map(|sample| sample.requests_per_second);
    let (lowest, highest) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    let or_dash = |value: Option<f64>| value.map_or_else(|| "–".into(), figure);
    vec![
        line.label(),
        count(line.rate()),
        format!("{}–{}", count(lowest), count(highest)),
        or_dash(line.median(Sample::cpu_us)),
        words::to_ring(block, line).map_or_else(|| "–".into(), |ratio| format!("{ratio:.2}")),
        or_dash(line.median(|sample| sample.p50_us)),
        or_dash(line.median(|sample| sample.p99_us)),
        or_dash(line.median(|sample| sample.p999_us)),
        or_dash(line.median(Sample::context_switches)),
        or_dash(line.syscalls),
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
        "schema": json::SCHEMA,
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
        "words": findings.blocks.iter().flat_map(words::sentences).collect::<Vec<_>>(),
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
        "ratios": { "cpu_to_uring": words::to_ring(block, line) },
    })
}
