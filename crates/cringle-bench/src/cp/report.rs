//! The report of `bench cp`: tables, plots and JSON.

use super::{Block, CpArgs, Line, sentences};
use crate::experiment::{Notes, Report, plot, words};
use crate::meter::Usage;
use cringle_report::machine::Machine;
use cringle_report::page::{Column, Rows, Section, cell, ratio_cell};
use cringle_report::units::{count, figure, mib};
use serde_json::{Value, json};

pub(super) fn of(args: &CpArgs, blocks: &[Block], machine: Machine, notes: Notes) -> Report {
    let section = |block: &Block| Section {
        title: sentences::title(block),
        sentences: sentences::sentences(block),
        plots: vec![
            plot("Time per copy", "s", &block.lines, |usage| usage.seconds),
            plot("CPU time per copy", "s", &block.lines, Usage::cpu_seconds),
        ],
        table: Some(rows(block)),
    };
    let sections: Vec<Section> = blocks.iter().map(section).collect();
    let runs = blocks.iter().flat_map(|block| block.lines.iter().map(move |line| run(block, line)));
    let fields = json!({
        "directory": args.directory.to_string_lossy(),
        "runs": runs.collect::<Vec<_>>(),
        "words": words(&sections),
    });
    Report::new("cp", "Which command copies fastest here", machine, sections, notes, fields)
}

fn rows(block: &Block) -> Rows {
    let best = sentences::best(block, |_| true).and_then(Line::seconds);
    let is_best = |line: &Line| line.seconds().is_some() && line.seconds() == best;
    let shape = &block.cell.shape;
    let rate = |line: &Line, amount: f64| line.seconds().map(|seconds| amount / seconds);
    let seconds = |line: &Line| match &line.subject.error {
        Some(_) => "failed".into(),
        None => three(line.seconds()),
    };
    let columns: [Column<'_, Line>; 8] = [
        ("tool", &|line| line.subject.label.clone()),
        ("s", &seconds),
        ("all samples", &samples),
        ("× cp", &|line| ratio_cell(block.ratio(line))),
        ("files/s", &|line| rate(line, shape.files as f64).map_or_else(|| "–".into(), count)),
        ("MiB/s", &|line| cell(rate(line, mib(shape.bytes() as f64)))),
        ("user s", &|line| three(line.median(|sample| sample.user_seconds))),
        ("system s", &|line| three(line.median(|sample| sample.system_seconds))),
    ];
    Rows { best: block.lines.iter().position(is_best), ..Rows::of(&columns, &block.lines) }
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

fn three(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "–".into(), |seconds| format!("{seconds:.3}"))
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
