//! The report of `bench cp`: tables, plots and JSON.

use super::{CpArgs, Line, Table, sentences};
use crate::experiment::{Notes, Report, plot, words};
use crate::meter::Usage;
use cringle_report::machine::Machine;
use cringle_report::page::{Column, Rows, Section, cell, ratio_cell};
use cringle_report::units::{count, figure, mib};
use serde_json::{Value, json};

pub(super) fn of(args: &CpArgs, tables: &[Table], machine: Machine, notes: Notes) -> Report {
    let section = |table: &Table| Section {
        title: sentences::title(table),
        sentences: sentences::sentences(table),
        plots: vec![
            plot("Time per copy", "s", &table.lines, |usage| usage.seconds),
            plot("CPU time per copy", "s", &table.lines, Usage::cpu_seconds),
        ],
        table: Some(rows(table)),
    };
    let sections: Vec<Section> = tables.iter().map(section).collect();
    let runs = Table::lines_of(tables).map(|(table, line)| run(table, line));
    let fields = json!({
        "directory": args.directory.to_string_lossy(),
        "runs": runs.collect::<Vec<_>>(),
        "words": words(&sections),
    });
    Report::new("cp", "Which command copies fastest here", machine, sections, notes, fields)
}

fn rows(table: &Table) -> Rows {
    let best = sentences::best(table, |_| true).and_then(Line::seconds);
    let is_best = |line: &Line| line.seconds().is_some() && line.seconds() == best;
    let shape = &table.case.shape;
    let rate = |line: &Line, amount: f64| line.seconds().map(|seconds| amount / seconds);
    let seconds = |line: &Line| match &line.subject.error {
        Some(_) => "failed".into(),
        None => three(line.seconds()),
    };
    let columns: [Column<'_, Line>; 8] = [
        ("tool", &|line| line.subject.label.clone()),
        ("s", &seconds),
        ("all samples", &samples),
        ("× cp", &|line| ratio_cell(table.ratio(line))),
        ("files/s", &|line| rate(line, shape.files as f64).map_or_else(|| "–".into(), count)),
        ("MiB/s", &|line| cell(rate(line, mib(shape.bytes() as f64)))),
        ("user s", &|line| three(line.median(|sample| sample.user_seconds))),
        ("system s", &|line| three(line.median(|sample| sample.system_seconds))),
    ];
    Rows { best: table.lines.iter().position(is_best), ..Rows::of(&columns, &table.lines) }
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

fn run(table: &Table, line: &Line) -> Value {
    let shape = &table.case.shape;
    let rate = |amount: u64| line.seconds().map(|seconds| amount as f64 / seconds);
    let other =
        sentences::best(table, |other| !sentences::is_ours(other) && other.subject.tool != "cp");
    let synced = table.lines.iter().find(|other| other.subject.then_sync);
    let to = |other: Option<&Line>| Some(line.seconds()? / other?.seconds()?);
    json!({
        "tree": table.case.tree,
        "regime": table.case.regime,
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
            "time_to_cp": table.ratio(line),
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
