//! The tables, and the same for programs.

use super::{Block, Findings, Line, Sample, words};
use crate::failure::Failure;
use crate::report::{self, json, table};
use crate::units::{count, figure, mib};
use serde_json::{Value, json};
use std::path::Path;

const HEADER: [&str; 8] =
    ["strategy", "s", "fastest–slowest", "× sync", "MiB/s", "user s", "system s", "ctx"];

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
    let seconds = || line.samples.iter().map(|sample| sample.usage.seconds);
    let (fastest, slowest) =
        (seconds().fold(f64::INFINITY, f64::min), seconds().fold(0.0, f64::max));
    vec![
        line.strategy.name().to_string(),
        format!("{:.3}", line.seconds()),
        format!("{fastest:.3}–{slowest:.3}"),
        block.to_sync(line).map_or_else(|| "–".into(), |ratio| format!("{ratio:.2}")),
        figure(mib(block.cell.bytes as f64) / line.seconds()),
        figure(line.median(|usage| usage.user_seconds)),
        figure(line.median(|usage| usage.system_seconds)),
        count(line.median(|usage| usage.context_switches as f64)),
    ]
}

fn value(findings: &Findings) -> Value {
    let blocks = || findings.blocks.iter();
    let of_lines = |of: fn(&Block, &Line) -> Vec<Value>| {
        blocks()
            .flat_map(move |block| block.lines.iter().flat_map(move |line| of(block, line)))
            .collect::<Vec<_>>()
    };
    json!({
        "schema": json::SCHEMA,
        "benchmark": "sum",
        "machine": findings.machine,
        "message_bytes": findings.message_bytes,
        "runs": of_lines(|block, line| {
            line.samples.iter().map(|sample| run(block, line, sample)).collect()
        }),
        "medians": of_lines(|block, line| vec![median(block, line)]),
        "words": blocks().flat_map(words::sentences).collect::<Vec<_>>(),
        "notes": findings.notes,
    })
}

fn run(block: &Block, line: &Line, sample: &Sample) -> Value {
    json!({
        "strategy": line.strategy,
        "source": block.cell.kind,
        "cache": block.cell.cache,
        "bytes": block.cell.bytes,
        "seconds": sample.usage.seconds,
        "user_s": sample.usage.user_seconds,
        "system_s": sample.usage.system_seconds,
        "context_switches": sample.usage.context_switches,
        "sum": sample.sum,
    })
}

fn median(block: &Block, line: &Line) -> Value {
    json!({
        "strategy": line.strategy,
        "source": block.cell.kind,
        "cache": block.cell.cache,
        "bytes": block.cell.bytes,
        "seconds": line.seconds(),
        "context_switches": line.median(|usage| usage.context_switches as f64),
        "ratios": { "seconds_to_sync": block.to_sync(line) },
    })
}
