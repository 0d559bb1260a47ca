//! The summary, and all results for programs.

use super::{Done, Findings};
use crate::failure::Failure;
use crate::report::{self, json, table, words};
use comfy_table::{Cell, CellAlignment};
use serde_json::{Value, json};
use std::path::Path;

const HEADER: [&str; 7] = ["question", "case", "winner", "", "× next", "× plain", "ours"];

pub(super) fn tell(findings: &Findings, json: Option<&Path>) -> Result<(), Failure> {
    if let Some(path) = json {
        report::save(path, &value(findings))?;
    }
    if report::is_stdout(json) { Ok(()) } else { report::print(&text(findings)) }
}

fn text(findings: &Findings) -> String {
    let mut out = format!("\nall: who won here, and why\n{}", table::machine(&findings.machine));
    out.push_str(&summary(findings));
    for verdict in findings.verdicts() {
        let chance = match verdict.overlap {
            true => " Rounds of the two best overlap: which is first may be chance.",
            false => "",
        };
        let sentence = format!("{}{chance}", verdict.why);
        let title = format!("{}, {}: ", verdict.question.name(), verdict.case);
        out.push_str(&words::wrapped(&format!("{title}{sentence}"), ""));
    }
    for done in &findings.done {
        if let Some(error) = &done.error {
            let failed = format!("{} failed: {error}", done.experiment.command());
            out.push_str(&words::wrapped(&failed, "error: "));
        }
    }
    for note in &findings.notes {
        out.push_str(&words::wrapped(note, "note: "));
    }
    out
}

/// A line for each contest. `× plain`: beside the way that everybody knows; `ours`: fibers or
/// `cringle cp`, as a part of the winner.
fn summary(findings: &Findings) -> String {
    let mut summary = table::plain(&HEADER);
    let ratio =
        |value: Option<f64>| value.map_or_else(|| "–".into(), |ratio| format!("{ratio:.2}"));
    for verdict in findings.verdicts() {
        let beside = |name: &str, value| format!("{} ({name})", ratio(value));
        let cells = [
            verdict.question.name().to_string(),
            verdict.case.clone(),
            verdict.winner.clone(),
            verdict.figure.clone(),
            beside(verdict.next.as_deref().unwrap_or("nobody"), verdict.winner_to_next),
            beside(&verdict.plain, verdict.winner_to_plain),
            beside(&verdict.ours, verdict.ours_to_winner),
        ];
        summary.add_row(cells.into_iter().enumerate().map(|(column, text)| {
            let cell = Cell::new(text);
            if column < 3 { cell } else { cell.set_alignment(CellAlignment::Right) }
        }));
    }
    format!("\n{}\n\n", summary.trim_fmt())
}

fn value(findings: &Findings) -> Value {
    json!({
        "schema": json::SCHEMA,
        "benchmark": "all",
        "machine": findings.machine,
        "quick": findings.quick,
        "experiments": findings.done.iter().map(experiment).collect::<Vec<_>>(),
        "verdicts": findings.verdicts().collect::<Vec<_>>(),
        "notes": findings.notes,
    })
}

fn experiment(done: &Done) -> Value {
    json!({
        "question": done.experiment.question,
        "command": done.experiment.command(),
        "seconds": done.seconds,
        "error": done.error,
        "report": done.report,
    })
}
