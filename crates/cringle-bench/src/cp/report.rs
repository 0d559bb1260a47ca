//! The report of `bench cp`: tables, plots and JSON.

use super::{Block, Findings, Line, sentences};
use crate::experiment::{Notes, Report, plot, words};
use crate::meter::Usage;
use cringle_report::machine::Machine;
use cringle_report::page::{Rows, Section, cell, ratio_cell};
use cringle_report::units::{count, figure, mib};
use serde_json::{Value, json};

const HEADER: [&str; 8] =
    ["tool", "s", "all samples", "× cp", "files/s", "MiB/s", "user s", "system s"];

pub(super) fn of(findings: &Findings<'_>, machine: Machine, notes: Notes) -> Report {
    let blocks = &findings.blocks;
    let section = |block: &Block| Section {
        title: sentences::title(block),
        sentences: sentences::sentences(block, findings),
        plots: vec![
            plot("Time per copy", "s", &block.lines, |usage| usage.seconds),
            plot("CPU time per copy", "s", &block.lines, Usage::cpu_seconds),
        ],
        table: Some(rows(block)),
        ..Section::default()
    };
    let sections: Vec<Section> = blocks.iter().map(section).collect();
    let runs = blocks.iter().flat_map(|block| block.lines.iter().map(move |line| run(block, line)));
    let fields = json!({
        "directory": findings.args.directory.to_string_lossy(),
        "runs": runs.collect::<Vec<_>>(),
        "fio": findings.disk_rates,
        "words": words(&sections),
    });
    Report::new("cp", "Which command copies fastest here", machine, sections, notes, fields)
}

fn rows(block: &Block) -> Rows {
    let best = sentences::best(block, |_| true).and_then(Line::seconds);
    let is_best = |line: &Line| line.seconds().is_some() && line.seconds() == best;
    Rows {
        best: block.lines.iter().position(is_best),
        ..Rows::new(&HEADER, block.lines.iter().map(|line| cells(block, line)))
    }
}

fn cells(block: &Block, line: &Line) -> Vec<String> {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "–".into());
    let shape = &block.cell.shape;
    let seconds = line.seconds();
    let rate = |amount: f64| seconds.map(|seconds| amount / seconds);
    vec![
        line.subject.label.clone(),
        if line.subject.error.is_some() { "failed".into() } else { or_dash(seconds.map(three)) },
        samples(line),
        ratio_cell(block.ratio(line)),
        or_dash(rate(shape.files as f64).map(count)),
        cell(rate(mib(shape.bytes() as f64))),
        or_dash(line.median(|sample| sample.user_seconds).map(three)),
        or_dash(line.median(|sample| sample.system_seconds).map(three)),
    ]
}

/// Formats all samples if they are few, otherwise the fastest and the slowest.
fn samples(line: &Line) -> String {
    const FEW: usize = 5;
    let all = line.values(|usage| usage.seconds);
    if all.len() > FEW {
        let (fastest, slowest) = line.range(|usage| usage.seconds);
        return format!("{} to {}", figure(fastest), figure(slowest));
    }
    all.into_iter().map(figure).collect::<Vec<_>>().join(" ")
}

fn three(seconds: f64) -> String {
    format!("{seconds:.3}")
}

fn run(block: &Block, line: &Line) -> Value {
    let shape = &block.cell.shape;
    let rate = |amount: u64| line.seconds().map(|seconds| amount as f64 / seconds);
    let other =
        sentences::best(block, |other| !sentences::is_ours(other) && other.subject.tool != "cp");
    let synced = block.lines.iter().find(|other| other.subject.then_sync);
    let to = |other: Option<&Line>| Some(line.seconds()? / other?.seconds()?);
    json!({
        "tree": block.cell.tree,
        "regime": block.cell.regime,
        "files": shape.files,
        "file_bytes": shape.file_bytes,
        "directories": shape.directories(),
        "name": line.subject.label,
        "tool": line.subject.tool,
        "version": line.subject.version,
        "command": line.subject.text(),
        "block_size": line.subject.block_size,
        "then_sync": line.subject.then_sync,
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
        "error": line.subject.error,
    })
}
