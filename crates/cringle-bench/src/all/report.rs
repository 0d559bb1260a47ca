//! The summary, and all results for programs.

use super::contests::{Contest, Line};
use super::ranking::Ranking;
use super::{Done, Findings};
use cringle_report::failure::Failure;
use cringle_report::page::wrapped;
use cringle_report::page::{Page, Rows, Section};
use cringle_report::plot::{Axis, Plot, Row};
use cringle_report::{Outputs, SCHEMA, table};
use serde_json::{Value, json};

const HEADER: [&str; 7] = ["question", "case", "winner", "", "× next", "× plain", "ours"];

pub(super) fn write(findings: &Findings, outputs: &Outputs) -> Result<(), Failure> {
    outputs.write_as(&value(findings), &page(findings), || text(findings))
}

/// The contests first, then what each experiment has to say.
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
    let rates = case.lines.iter().flat_map(|line| line.rates.clone());
    let title = format!("{}, {}", case.question.name(), case.title);
    let axis = Axis::fitting(case.question.unit(), rates);
    Plot::rows(title, axis, case.lines.iter().map(row).collect())
}

/// The command, and what it found.
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
    let chance = match ranking.overlap {
        true => " Rounds of the two best overlap: which is first may be chance.",
        false => "",
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

/// A line for each contest. `× plain`: beside the way that everybody knows; `ours`: fibers or
/// `cringle cp`, as a part of the winner.
fn summary(findings: &Findings) -> Rows {
    let ratio =
        |value: Option<f64>| value.map_or_else(|| "–".into(), |ratio| format!("{ratio:.2}"));
    let beside = |name: &str, value| format!("{} ({name})", ratio(value));
    let cells = |ranking: &Ranking| {
        vec![
            ranking.question.name().to_string(),
            ranking.case.clone(),
            ranking.winner.clone(),
            ranking.figure.clone(),
            beside(ranking.next.as_deref().unwrap_or("nobody"), ranking.winner_to_next),
            beside(&ranking.plain, ranking.winner_to_plain),
            beside(&ranking.ours, ranking.ours_to_winner),
        ]
    };
    Rows { words: 3, ..Rows::new(&HEADER, findings.rankings().map(cells)) }
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
