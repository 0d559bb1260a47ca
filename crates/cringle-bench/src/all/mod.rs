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

use crate::experiment::{Notes, Report};
use contests::Contest;
use cringle_report::failure::{Failure, fail};
use cringle_report::interrupt;
use cringle_report::machine::{Machine, storage::Storage};
use experiments::Call;
use ranking::Ranking;
use run::Outcome;
use std::time::Instant;

/// An experiment that has ended, with its results.
struct Done {
    call: Call,
    seconds: f64,
    outcome: Outcome,
    contests: Vec<Contest>,
    rankings: Vec<Ranking>,
}

fn measure(args: &AllArgs) -> Result<Report, Failure> {
    let calls = experiments::chosen(args);
    experiments::check_space(&calls, args)?;
    let machine = Machine::of(&Storage::under(&args.directory)?);
    let mut notes = Notes::default();
    if args.quick {
        notes.add("--quick: the sizes are too small for meaningful figures");
    }
    if cfg!(debug_assertions) {
        notes.add("this cringle is a debug build: its figures are meaningless");
    }
    let (count, mut all) = (calls.len(), Vec::new());
    for (number, call) in calls.into_iter().enumerate() {
        announce(args, &format!("{} of {count}: {}", number + 1, call.command()))?;
        all.push(perform(call, args));
        if interrupt::is_requested() {
            return fail("interrupted");
        }
    }
    let outcome = match all.iter().filter(|done| done.outcome.error.is_some()).count() {
        0 => Ok(()),
        1 => fail("an experiment failed"),
        n => fail(format!("{n} experiments failed")),
    };
    Ok(Report { outcome, ..report::of(args, &all, machine, notes) })
}

/// Prints a line above the experiment's own tables, or on standard error if standard output is
/// data.
fn announce(args: &AllArgs, line: &str) -> Result<(), Failure> {
    if args.outputs.quiet {
        return Ok(());
    }
    if args.outputs.use_stdout() {
        cringle_report::complain(line);
        return Ok(());
    }
    cringle_report::print(&format!("\n{line}\n"))
}

fn perform(call: Call, args: &AllArgs) -> Done {
    let started = Instant::now();
    let outcome = run::run(&call, args);
    let seconds = started.elapsed().as_secs_f64();
    if let Some(error) = outcome.error.as_ref().filter(|_| !interrupt::is_requested()) {
        cringle_report::complain(&format!("cringle: {} failed: {error}", call.command()));
    }
    let contests: Vec<Contest> =
        outcome.report.iter().flat_map(|report| contests::of(call.question, report)).collect();
    let rankings = contests.iter().filter_map(ranking::rank).collect();
    Done { call, seconds, outcome, contests, rankings }
}
