//! `cringle bench cp`: copies the same trees with `cp -r`, `cringle cp -r` and the other copy
//! commands that are installed, in turns.
//!
//! Promises: no file is removed before the last measurement (ext4 avoids inodes that were deleted
//! in the last seconds, and its search for others takes much longer than the copy); each copy is
//! verified; an outlier is reported; and all files are removed, however the command ends, except by
//! SIGKILL.

mod args;
mod disk_rate;
mod report;
mod run;
mod sentences;
mod tools;
mod trees;
mod verify;
mod workspace;

pub use args::CpArgs;

use crate::child::Sample;
use crate::notes::Notes;
use crate::progress::Progress;
use args::Cell;
use cringle_report::failure::{Failure, fail};
use cringle_report::interrupt;
use cringle_report::machine::Machine;
use disk_rate::DiskRate;
use std::path::PathBuf;
use tools::Candidate;
use workspace::Workspace;

/// A row of a table.
struct Line {
    candidate: Candidate,
    /// One for each round, in order, until an error.
    samples: Vec<Sample>,
    error: Option<String>,
}

impl Line {
    fn seconds(&self) -> Option<f64> {
        self.median(|sample| sample.seconds)
    }

    fn cpu_seconds(&self) -> Option<f64> {
        self.median(Sample::cpu_seconds)
    }

    /// Returns the median of a figure, or `None` for a tool that failed.
    fn median(&self, of: impl Fn(&Sample) -> f64) -> Option<f64> {
        let samples = self.samples.iter().filter(|_| self.error.is_none());
        cringle_report::stats::median(samples.map(of))
    }
}

struct Block {
    cell: Cell,
    lines: Vec<Line>,
}

impl Block {
    /// Returns the row that all others are compared with.
    fn base(&self) -> Option<&Line> {
        self.lines.iter().find(|line| line.candidate.tool == "cp")
    }

    /// Returns the time of a row as a multiple of the time of `cp`.
    fn ratio(&self, line: &Line) -> Option<f64> {
        Some(line.seconds()? / self.base()?.seconds()?)
    }
}

struct Findings {
    machine: Machine,
    directory: PathBuf,
    blocks: Vec<Block>,
    disk_rates: Vec<DiskRate>,
    notes: Vec<String>,
}

pub(crate) fn run(args: &CpArgs, verbose: bool) -> Result<(), Failure> {
    args.validate()?;
    crate::begin(verbose);
    interrupt::let_command_clean_up();
    crate::unless_interrupted(benchmark(args))
}

/// Returns the bytes that the trees and their copies need.
pub(crate) fn space_needed(args: &CpArgs) -> Result<u64, Failure> {
    let tools = tools::chosen(args, &mut Notes::default())?;
    Ok(workspace::needed(args, &run::blocks(args, &tools)).0)
}

fn benchmark(args: &CpArgs) -> Result<(), Failure> {
    let mut notes = Notes::default();
    let tools = tools::chosen(args, &mut notes)?;
    if tools.is_empty() {
        return fail("no copy command to measure is installed");
    }
    let storage = crate::storage_under(&args.directory)?;
    if let Some(memory) = storage.in_memory() {
        let path = args.directory.display();
        notes.add(format!("{path} is {memory}: no figure here is that of a disk"));
    }
    if cfg!(debug_assertions) && tools.iter().any(|tool| tool.name == "cringle") {
        notes.add("this cringle is a debug build: its figures are meaningless");
    }
    let progress = Progress::new(!args.quiet);
    let blocks = run::blocks(args, &tools);
    workspace::check_space(args, &blocks)?;
    let workspace = Workspace::make(&args.directory)?;
    let mut findings = Findings {
        machine: Machine::of(&storage),
        directory: args.directory.clone(),
        blocks,
        disk_rates: Vec::new(),
        notes: Vec::new(),
    };
    run::measure(args, &workspace, &mut findings, &mut notes, &progress)?;
    findings.notes = notes.all().to_vec();
    report::write(&findings, &args.outputs)?;
    workspace.remove(&progress)?;
    outcome(&findings)
}

/// Fails if a copy was incomplete. The report has been written before.
fn outcome(findings: &Findings) -> Result<(), Failure> {
    let lines = findings.blocks.iter().flat_map(|block| &block.lines);
    let mut failed: Vec<&str> = lines
        .filter(|line| line.error.is_some())
        .map(|line| line.candidate.tool.as_str())
        .collect();
    failed.sort_unstable();
    failed.dedup();
    if failed.is_empty() {
        return Ok(());
    }
    fail(format!("copies failed: see the errors of {} above", failed.join(", ")))
}
