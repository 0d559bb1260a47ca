//! The report of `bench all`: the summary, one page with all reports, and JSON.

use super::contests::{Contest, Line};
use super::ranking::Ranking;
use super::{Done, Findings};
use cringle_report::failure::Failure;
use cringle_report::page::{Page, Rows, Section, ratio_cell, wrapped};
use cringle_report::plot::{Plot, Row};
use cringle_report::{Outputs, SCHEMA, table};
use serde_json::{Value, json};

const HEADER: [&str; 7] = ["question", "case", "winner", "", "× next", "× plain", "ours"];

pub(super) fn write(findings: &Findings, outputs: &Outputs) -> Result<(), Failure> {
    outputs.write_with_text(&value(findings), &page(findings), || text(findings))
}

/// Returns the page: the contests, followed by the report of each experiment.
fn page(findings: &Findings) -> Page {
    let winners = Section {
        title: "Who won".into(),
        sentences: findings.rankings().map(sentence).chain(errors(findings)).collect(),
        plots: findings.done.iter().flat_map(|done| &done.contests).map(rates).collect(),
        table: Some(summary(findings)),
        ..Section::default()
    };
    let mut notes = findings.notes.clone();
    for note in findings.done.iter().filter_map(|done| done.page.as_ref()).flat_map(|p| &p.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    Page {
        bench: "bench all".into(),
        title: "Who wins here, and why".into(),
        machine: findings.machine.clone(),
        sections: std::iter::once(winners).chain(findings.done.iter().flat_map(sections)).collect(),
        notes,
    }
}

fn rates(case: &Contest) -> Plot {
    let row = |line: &Line| Row { label: line.name.clone(), samples: line.rates.clone() };
    let title = format!("{}, {}", case.question.name(), case.title);
    Plot::rows(title, case.question.unit(), case.lines.iter().map(row).collect())
}

/// Returns the command of an experiment and the sections of its report.
fn sections(done: &Done) -> Vec<Section> {
    let command = Section { title: done.experiment.command(), ..Section::default() };
    let found = done.page.iter().flat_map(|page| page.sections.clone());
    std::iter::once(command).chain(found).collect()
}

fn text(findings: &Findings) -> String {
    let mut out = format!("\nall: who won here, and why\n{}", table::machine(&findings.machine));
    out.push_str(&format!("\n{}\n", table::rows(&summary(findings))));
    findings.rankings().for_each(|one| out.push_str(&wrapped(&sentence(one), "")));
    errors(findings).for_each(|error| out.push_str(&wrapped(&error, "error: ")));
    for note in &findings.notes {
        out.push_str(&wrapped(note, "note: "));
    }
    out
}

fn sentence(ranking: &Ranking) -> String {
    let chance = if ranking.overlap {
        " Rounds of the best two overlap, so their order may be chance."
    } else {
        ""
    };
    format!("{}, {}: {}{chance}", ranking.question.name(), ranking.case, ranking.why)
}

fn errors(findings: &Findings) -> impl Iterator<Item = String> {
    let failed = |done: &Done| {
        let error = done.error.as_ref()?;
        Some(format!("{} failed: {error}", done.experiment.command()))
    };
    findings.done.iter().filter_map(failed)
}

/// Returns a row for each contest. `× plain` compares the winner with the conventional way; `ours`
/// compares fibers or `cringle cp` with the winner.
fn summary(findings: &Findings) -> Rows {
    let beside = |name: &str, value| format!("{} ({name})", ratio_cell(value));
    let cells = |ranking: &Ranking| {
        vec![
            ranking.question.name().to_string(),
            ranking.case.clone(),
            ranking.winner.clone(),
            ranking.figure.clone(),
            beside(ranking.next.as_deref().unwrap_or("none"), ranking.winner_to_next),
            beside(&ranking.plain, ranking.winner_to_plain),
            beside(&ranking.ours, ranking.ours_to_winner),
        ]
    };
    Rows { text_columns: 3, ..Rows::new(&HEADER, findings.rankings().map(cells)) }
}

fn value(findings: &Findings) -> Value {
    json!({
        "schema": SCHEMA,
        "benchmark": "all",
        "machine": findings.machine,
        "quick": findings.quick,
        "experiments": findings.done.iter().map(experiment).collect::<Vec<_>>(),
        "verdicts": findings.rankings().collect::<Vec<_>>(),
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
