//! `cringle bench cp`: copies the same trees with `cp -r`, `cringle cp -r` and the other copy
//! commands that are installed, in turns.
//!
//! Promises: no file is removed before the last measurement (ext4 avoids inodes that were deleted
//! in the last seconds, and its search for others takes much longer than the copy); each copy is
//! verified; an outlier is reported; and all files are removed, however the command ends, except by
//! SIGKILL.

mod args;
mod report;
mod run;
mod sentences;
mod tools;
mod trees;
mod verify;
mod workspace;

pub use args::CpArgs;

use crate::experiment::{self, Notes, Report};
use crate::meter::Usage;
use crate::rounds::Progress;
use args::CopyCase;
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::Machine;
use tools::Candidate;
use workspace::Workspace;

type Line = experiment::Line<Candidate, Usage>;

impl Line {
    fn seconds(&self) -> Option<f64> {
        self.median(|usage| usage.seconds)
    }
}

type Table = experiment::Table<CopyCase, Candidate, Usage>;

impl Table {
    /// Returns the row that all others are compared with.
    fn base(&self) -> Option<&Line> {
        self.lines.iter().find(|line| line.subject.tool == "cp")
    }

    /// Returns the time of a row as a multiple of the time of `cp`.
    fn ratio(&self, line: &Line) -> Option<f64> {
        Some(line.seconds()? / self.base()?.seconds()?)
    }
}

/// Returns the bytes that the trees and their copies need.
pub(crate) fn space_needed(args: &CpArgs) -> Result<u64, Failure> {
    let tools = tools::chosen(args, &mut Notes::default())?;
    Ok(workspace::needed(args, &run::tables(args, &tools)).0)
}

fn measure(args: &CpArgs) -> Result<Report, Failure> {
    let mut notes = Notes::default();
    let tools = tools::chosen(args, &mut notes)?;
    if tools.is_empty() {
        return fail("no copy command to measure is installed");
    }
    let storage = crate::storage_under(&args.directory)?;
    notes.if_in_memory(&storage, &args.directory, "no figure here is that of a disk");
    if cfg!(debug_assertions) && tools.iter().any(|tool| tool.name == "cringle") {
        notes.add("this cringle is a debug build: its figures are meaningless");
    }
    let (progress, machine) = (Progress::new(!args.outputs.quiet), Machine::of(&storage));
    let mut tables = run::tables(args, &tools);
    workspace::check_space(args, &tables)?;
    let workspace = Workspace::make(&args.directory)?;
    run::memory_note(&tables, &machine, &mut notes);
    run::measure(args, &workspace, &mut tables, &mut notes, &progress)?;
    let report = report::of(args, &tables, machine, notes);
    let outcome = workspace.remove(&progress).and(outcome(&tables));
    Ok(Report { outcome, ..report })
}

/// Fails if a copy was incomplete.
fn outcome(tables: &[Table]) -> Result<(), Failure> {
    let candidates = tables.iter().flat_map(|table| &table.lines).map(|line| &line.subject);
    let failed = candidates.filter(|candidate| candidate.error.is_some());
    let mut failed: Vec<&str> = failed.map(|candidate| candidate.tool.as_str()).collect();
    failed.sort_unstable();
    failed.dedup();
    if failed.is_empty() {
        return Ok(());
    }
    fail(format!("copies failed: see the errors of {} above", failed.join(", ")))
}
