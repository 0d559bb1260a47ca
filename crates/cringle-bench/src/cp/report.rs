//! The report of `bench cp`: tables, plots and JSON.

use super::{Block, Findings, Line, Sample, sentences};
use cringle_report::failure::Failure;
use cringle_report::page::{Page, Rows, Section, cell, ratio_cell};
use cringle_report::plot::{Plot, Row};
use cringle_report::units::{count, figure, mib};
use cringle_report::{Outputs, SCHEMA};
use serde_json::{Value, json};

const HEADER: [&str; 8] =
    ["tool", "s", "all samples", "× cp", "files/s", "MiB/s", "user s", "system s"];

pub(super) fn write(findings: &Findings, outputs: &Outputs) -> Result<(), Failure> {
    outputs.write(&value(findings), &page(findings))
}

fn page(findings: &Findings) -> Page {
    Page {
        bench: "bench cp".into(),
        title: "Which command copies fastest here".into(),
        machine: findings.machine.clone(),
        sections: findings.blocks.iter().map(|block| section(block, findings)).collect(),
        notes: findings.notes.clone(),
    }
}

fn section(block: &Block, findings: &Findings) -> Section {
    Section {
        title: sentences::title(block),
        sentences: sentences::sentences(block, findings),
        plots: vec![
            plot(block, "Time per copy", |sample| sample.seconds),
            plot(block, "CPU time per copy", Sample::cpu_seconds),
        ],
        table: Some(lines(block)),
        ..Section::default()
    }
}

/// Plots the tools that have not failed.
fn plot(block: &Block, title: &str, of: fn(&Sample) -> f64) -> Plot {
    let succeeded = block.lines.iter().filter(|line| line.error.is_none());
    let samples = |line: &Line| line.samples.iter().map(of).collect::<Vec<_>>();
    let row = |line: &Line| Row { label: line.candidate.label.clone(), samples: samples(line) };
    Plot::rows(title, "s", succeeded.map(row).collect())
}

fn lines(block: &Block) -> Rows {
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
        line.candidate.label.clone(),
        if line.error.is_some() { "failed".into() } else { or_dash(seconds.map(three)) },
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
    let all: Vec<String> = line.samples.iter().map(|sample| figure(sample.seconds)).collect();
    match sentences::range(line) {
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
    let words = findings.blocks.iter().flat_map(|block| sentences::sentences(block, findings));
    json!({
        "schema": SCHEMA,
        "benchmark": "cp",
        "machine": findings.machine,
        "directory": findings.directory.to_string_lossy(),
        "runs": runs.collect::<Vec<_>>(),
        "fio": findings.disk_rates,
        "words": words.collect::<Vec<_>>(),
        "notes": findings.notes,
    })
}

fn run(block: &Block, line: &Line) -> Value {
    let shape = &block.cell.shape;
    let rate = |amount: u64| line.seconds().map(|seconds| amount as f64 / seconds);
    let other =
        sentences::best(block, |other| !sentences::is_ours(other) && other.candidate.tool != "cp");
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
