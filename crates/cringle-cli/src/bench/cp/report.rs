//! The tables, and the same for programs.

use super::{Block, Findings, Line, words};
use crate::failure::Failure;
use crate::report::{self, colored, json, table};
use crate::units::{count, figure, mib};
use comfy_table::{Cell, CellAlignment, Color};
use serde_json::{Value, json};
use std::path::Path;

const HEADER: [&str; 8] =
    ["tool", "s", "all samples", "× cp", "files/s", "MiB/s", "user s", "system s"];

pub(super) fn tell(findings: &Findings, json: Option<&Path>) -> Result<(), Failure> {
    if let Some(path) = json {
        report::save(path, &value(findings))?;
    }
    if report::is_stdout(json) { Ok(()) } else { report::print(&text(findings)) }
}

fn text(findings: &Findings) -> String {
    let mut out = table::machine(&findings.machine);
    for block in &findings.blocks {
        out.push('\n');
        out.push_str(&words::title(block));
        out.push('\n');
        out.push_str(&lines(block));
        out.push('\n');
        for sentence in words::sentences(block, findings) {
            out.push_str(&report::words::wrapped(&sentence, ""));
        }
    }
    for note in &findings.notes {
        out.push_str(&report::words::wrapped(note, "note: "));
    }
    out
}

fn lines(block: &Block) -> String {
    let mut table = table::plain(&HEADER);
    let best = words::best(block, |_| true).and_then(Line::seconds);
    for line in &block.lines {
        let is_best = line.seconds().is_some() && line.seconds() == best;
        table.add_row(cells(block, line).into_iter().enumerate().map(|(column, text)| {
            let cell = Cell::new(text);
            match column {
                0 => cell,
                _ if colored() && is_best => {
                    cell.fg(Color::Green).set_alignment(CellAlignment::Right)
                }
                _ => cell.set_alignment(CellAlignment::Right),
            }
        }));
    }
    format!("{}\n", table.trim_fmt())
}

fn cells(block: &Block, line: &Line) -> Vec<String> {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "–".into());
    let shape = &block.cell.shape;
    let seconds = line.seconds();
    let rate = |amount: f64| seconds.map(|seconds| amount / seconds);
    vec![
        line.candidate.label.clone(),
        if line.error.is_some() { "failed".into() } else { or_dash(seconds.map(three)) },
        samples(line),
        or_dash(block.ratio(line).map(|ratio| format!("{ratio:.2}"))),
        or_dash(rate(shape.files as f64).map(count)),
        or_dash(rate(mib(shape.bytes() as f64)).map(figure)),
        or_dash(line.median(|sample| sample.user_seconds).map(three)),
        or_dash(line.median(|sample| sample.system_seconds).map(three)),
    ]
}

/// All of a few, else the fastest and the slowest.
fn samples(line: &Line) -> String {
    const FEW: usize = 5;
    let all: Vec<String> = line.samples.iter().map(|sample| figure(sample.seconds)).collect();
    match words::range(line) {
        Some((fastest, slowest)) if all.len() > FEW => {
            format!("{} to {}", figure(fastest), figure(slowest))
        }
        _ => all.join(" "),
    }
}

fn three(seconds: f64) -> String {
    format!("{seconds:.3}")
}

fn value(findings: &Findings) -> Value {
    let runs = findings
        .blocks
        .iter()
        .flat_map(|block| block.lines.iter().map(|line| run(block, line)).collect::<Vec<_>>());
    let words = findings.blocks.iter().flat_map(|block| words::sentences(block, findings));
    json!({
        "schema": json::SCHEMA,
        "benchmark": "cp",
        "machine": findings.machine,
        "directory": findings.directory.to_string_lossy(),
        "runs": runs.collect::<Vec<_>>(),
        "fio": findings.expectations,
        "words": words.collect::<Vec<_>>(),
        "notes": findings.notes,
    })
}

fn run(block: &Block, line: &Line) -> Value {
    let shape = &block.cell.shape;
    let rate = |amount: u64| line.seconds().map(|seconds| amount as f64 / seconds);
    let other = words::best(block, |other| !words::is_ours(other) && other.candidate.tool != "cp");
    let synced = block.lines.iter().find(|other| other.candidate.then_sync);
    let to = |other: Option<&Line>| Some(line.seconds()? / other?.seconds()?);
    json!({
        "tree": block.cell.tree,
        "regime": block.cell.regime,
        "files": shape.files,
        "file_bytes": shape.file_bytes,
        "directories": shape.directories(),
        "name": line.candidate.label,
        "tool": line.candidate.tool,
        "version": line.candidate.version,
        "command": line.candidate.text(),
        "block_size": line.candidate.block_size,
        "then_sync": line.candidate.then_sync,
        "seconds": line.seconds(),
        "files_per_second": rate(shape.files),
        "bytes_per_second": rate(shape.bytes()),
        "user_seconds": line.median(|sample| sample.user_seconds),
        "system_seconds": line.median(|sample| sample.system_seconds),
        "ratios": {
            "time_to_cp": block.ratio(line),
            "time_to_cp_then_sync": to(synced),
            "time_to_best_other": to(other),
        },
        "samples": line.samples.iter().map(|sample| json!({
            "seconds": sample.seconds,
            "user_seconds": sample.user_seconds,
            "system_seconds": sample.system_seconds,
        })).collect::<Vec<_>>(),
        "error": line.error,
    })
}
