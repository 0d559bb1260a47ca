//! The report of `bench all`: the summary, one page with all reports, and JSON.

use super::Done;
use super::args::AllArgs;
use super::contests::{Contest, Line};
use super::ranking::Ranking;
use crate::experiment::{Named, Notes, Report};
use crate::rounds::distinct;
use cringle_report::machine::Machine;
use cringle_report::page::{Column, Rows, Section, ratio_cell, wrapped};
use cringle_report::plot::{Plot, Row};
use cringle_report::table;
use serde_json::{Value, json};

/// The page has the contests, followed by the report of each experiment. The text has no reports,
/// because each command has printed its own.
pub(super) fn of(args: &AllArgs, all: &[Done], machine: Machine, notes: Notes) -> Report {
    let rankings: Vec<&Ranking> = all.iter().flat_map(|done| &done.rankings).collect();
    let summary = summary(&rankings);
    let sentences: Vec<String> = rankings.iter().map(|one| sentence(one)).collect();
    let errors: Vec<String> = all.iter().filter_map(error).collect();
    let mut text = format!("\nall: who won here, and why\n{}", table::machine(&machine));
    text.push_str(&format!("\n{}\n", table::rows(&summary)));
    for (prefix, lines) in [("", &sentences), ("error: ", &errors), ("note: ", &notes.0)] {
        lines.iter().for_each(|line| text.push_str(&wrapped(line, prefix)));
    }
    let fields = json!({
        "quick": args.quick,
        "experiments": all.iter().map(experiment).collect::<Vec<_>>(),
        "verdicts": rankings,
    });
    let winners = Section {
        title: "Who won".into(),
        sentences: [sentences, errors].concat(),
        plots: all.iter().flat_map(|done| &done.contests).map(rates).collect(),
        table: Some(summary),
    };
    let sections = std::iter::once(winners).chain(all.iter().flat_map(sections)).collect();
    let mut report = Report::new("all", "Who wins here, and why", machine, sections, notes, fields);
    let theirs =
        all.iter().filter_map(|done| done.outcome.page.as_ref()).flat_map(|page| &page.notes);
    report.page.notes =
        distinct(std::mem::take(&mut report.page.notes).iter().chain(theirs).cloned());
    Report { text: Some(text), ..report }
}

fn rates(case: &Contest) -> Plot {
    let row = |line: &Line| Row { label: line.name.clone(), samples: line.rates.clone() };
    let title = format!("{}, {}", case.question.name(), case.title);
    Plot::rows(title, case.question.unit(), case.lines.iter().map(row).collect())
}

/// Returns the command of an experiment and the sections of its report.
fn sections(done: &Done) -> Vec<Section> {
    let command = Section { title: done.call.command(), ..Section::default() };
    let found = done.outcome.page.iter().flat_map(|page| page.sections.clone());
    std::iter::once(command).chain(found).collect()
}

fn sentence(ranking: &Ranking) -> String {
    let chance = if ranking.overlap {
        " Rounds of the best two overlap, so their order may be chance."
    } else {
        ""
    };
    format!("{}, {}: {}{chance}", ranking.question.name(), ranking.case, ranking.why)
}

fn error(done: &Done) -> Option<String> {
    Some(format!("{} failed: {}", done.call.command(), done.outcome.error.as_ref()?))
}

/// Returns a row for each contest. `× plain` compares the winner with the conventional way; `ours`
/// compares fibers or `cringle cp` with the winner.
fn summary(rankings: &[&Ranking]) -> Rows {
    let beside = |name: &str, value| format!("{} ({name})", ratio_cell(value));
    let next = |it: &Ranking| it.next.as_deref().unwrap_or("none").to_owned();
    let columns: [Column<'_, Ranking>; 7] = [
        ("question", &|it| it.question.name()),
        ("case", &|it| it.case.clone()),
        ("winner", &|it| it.winner.clone()),
        ("", &|it| it.figure.clone()),
        ("× next", &|it| beside(&next(it), it.winner_to_next)),
        ("× plain", &|it| beside(&it.plain, it.winner_to_plain)),
        ("ours", &|it| beside(&it.ours, it.ours_to_winner)),
    ];
    Rows { text_columns: 3, ..Rows::of(&columns, rankings.iter().copied()) }
}

fn experiment(done: &Done) -> Value {
    json!({
        "question": done.call.question,
        "command": done.call.command(),
        "seconds": done.seconds,
        "error": done.outcome.error,
        "report": done.outcome.report,
    })
}
