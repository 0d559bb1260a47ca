//! `cringle bench all`: runs every experiment with the command that a user would type, and reports
//! who won, by how much, and which figures explain it.
//!
//! The experiments are child processes: the changes of one to its process (limits, pinning, memory)
//! do not affect the next, and one that fails does not stop the others. Each removes its own files.

mod args;
mod contests;
mod experiments;
mod ranking;
mod report;
mod run;

pub use args::AllArgs;

use contests::Contest;
use cringle_report::failure::{Failure, fail};
use cringle_report::interrupt;
use cringle_report::machine::{Machine, storage::Storage};
use cringle_report::page::Page;
use experiments::Experiment;
use ranking::Ranking;
use serde_json::Value;
use std::time::Instant;

/// An experiment that has ended, with its results.
struct Done {
    experiment: Experiment,
    seconds: f64,
    report: Option<Value>,
    page: Option<Page>,
    error: Option<String>,
    contests: Vec<Contest>,
    rankings: Vec<Ranking>,
}

struct Findings {
    machine: Machine,
    quick: bool,
    done: Vec<Done>,
    notes: Vec<String>,
}

impl Findings {
    fn rankings(&self) -> impl Iterator<Item = &Ranking> {
        self.done.iter().flat_map(|done| &done.rankings)
    }
}

pub(crate) fn run(args: &AllArgs, verbose: bool) -> Result<(), Failure> {
    args.validate()?;
    crate::begin(verbose);
    // The child removes its own files; this process passes the signal on and waits.
    interrupt::let_command_clean_up();
    crate::unless_interrupted(all(args))
}

fn all(args: &AllArgs) -> Result<(), Failure> {
    let chosen = experiments::chosen(args);
    experiments::check_space(&chosen, args)?;
    let mut findings = Findings {
        machine: Machine::of(&Storage::under(&args.directory)?),
        quick: args.quick,
        done: Vec::new(),
        notes: notes(args),
    };
    let count = chosen.len();
    for (number, experiment) in chosen.into_iter().enumerate() {
        announce(args, &format!("{} of {count}: {}", number + 1, experiment.command()))?;
        findings.done.push(perform(experiment, args));
        if interrupt::is_requested() {
            return Ok(());
        }
    }
    report::write(&findings, &args.outputs)?;
    outcome(&findings)
}

fn notes(args: &AllArgs) -> Vec<String> {
    let mut notes = Vec::new();
    if args.quick {
        notes.push("--quick: the sizes are too small for meaningful figures".into());
    }
    if cfg!(debug_assertions) {
        notes.push("this cringle is a debug build: its figures are meaningless".into());
    }
    notes
}

/// Prints a line above the experiment's own tables, or on standard error if standard output is
/// data.
fn announce(args: &AllArgs, line: &str) -> Result<(), Failure> {
    if args.quiet {
        return Ok(());
    }
    if args.outputs.use_stdout() {
        cringle_report::complain(line);
        return Ok(());
    }
    cringle_report::print(&format!("\n{line}\n"))
}

fn perform(experiment: Experiment, args: &AllArgs) -> Done {
    let started = Instant::now();
    let run::Outcome { report, page, error } = run::run(&experiment, args);
    let seconds = started.elapsed().as_secs_f64();
    if let Some(error) = error.as_ref().filter(|_| !interrupt::is_requested()) {
        cringle_report::complain(&format!("cringle: {} failed: {error}", experiment.command()));
    }
    let contests: Vec<Contest> =
        report.iter().flat_map(|report| contests::of(experiment.question, report)).collect();
    let rankings = contests.iter().filter_map(ranking::rank).collect();
    Done { experiment, seconds, report, page, error, contests, rankings }
}

/// Fails if an experiment has failed. The report has been written before.
fn outcome(findings: &Findings) -> Result<(), Failure> {
    let failed = findings.done.iter().filter(|done| done.error.is_some()).count();
    match failed {
        0 => Ok(()),
        1 => fail("an experiment failed"),
        n => fail(format!("{n} experiments failed")),
    }
}
