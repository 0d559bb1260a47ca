//! `cringle bench cp`: the same trees copied by `cp -r`, by `cringle cp -r` and by whatever
//! other copy commands are installed, in turns.
//!
//! Promises: nothing is removed while anything is measured (ext4 avoids inodes that were deleted
//! in the last seconds, and the search for others costs every tool many times the copy); each
//! copy is checked; a sample far off its fellows is shown; and what was made is removed, however
//! the command ends, short of SIGKILL.

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
use cringle_report::machine::{Machine, storage::Storage};
use disk_rate::DiskRate;
use std::path::PathBuf;
use tools::Candidate;
use workspace::Workspace;

/// A line of a table.
struct Line {
    candidate: Candidate,
    /// In the order of the rounds.
    samples: Vec<Sample>,
    /// Why there are no more samples.
    error: Option<String>,
}

impl Line {
    fn seconds(&self) -> Option<f64> {
        self.median(|sample| sample.seconds)
    }

    fn cpu_seconds(&self) -> Option<f64> {
        self.median(|sample| sample.user_seconds + sample.system_seconds)
    }

    /// Nothing of a tool that failed: what it did not finish is no figure.
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
    /// The line that all others are compared with.
    fn base(&self) -> Option<&Line> {
        self.lines.iter().find(|line| line.candidate.tool == "cp")
    }

    /// A line's time in times of `cp`'s.
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

pub fn run(args: &CpArgs, verbose: bool) -> Result<(), Failure> {
    args.validate()?;
    args.outputs.check()?;
    if verbose {
        cringle_report::complain(&super::describe_driver());
    }
    interrupt::let_command_clean_up();
    let ended = benchmark(args);
    match interrupt::is_requested() {
        true => Err(Failure::interrupted("interrupted; what was made is removed")),
        false => ended,
    }
}

/// Bytes that the trees and their copies take.
pub fn room(args: &CpArgs) -> Result<u64, Failure> {
    let tools = tools::chosen(args, &mut Notes::default())?;
    Ok(workspace::needed(args, &run::blocks(args, &tools)).0)
}

fn benchmark(args: &CpArgs) -> Result<(), Failure> {
    let mut notes = Notes::default();
    let tools = tools::chosen(args, &mut notes)?;
    if tools.is_empty() {
        return fail("there is no copy command to measure");
    }
    let shown = args.directory.display();
    let storage = Storage::under(&args.directory)
        .map_err(|error| Failure::failed(format!("cannot look at {shown}: {error}")))?;
    if let Some(memory) = storage.in_memory() {
        notes.add(format!("{shown} is {memory}: no figure here is one of a disk"));
    }
    if cfg!(debug_assertions) && tools.iter().any(|tool| tool.name == "cringle") {
        notes.add("this cringle is a debug build, and its figures mean little");
    }
    let progress = Progress::new(!args.quiet);
    let blocks = run::blocks(args, &tools);
    workspace::check_room(args, &blocks)?;
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

/// The tables are printed all the same, but a copy that is not whole is a failure.
fn outcome(findings: &Findings) -> Result<(), Failure> {
    let lines = findings.blocks.iter().flat_map(|block| &block.lines);
    let mut failed: Vec<&str> = lines
        .filter(|line| line.error.is_some())
        .map(|line| line.candidate.tool.as_str())
        .collect();
    failed.sort_unstable();
    failed.dedup();
    match failed.is_empty() {
        true => Ok(()),
        false => fail(format!("not all copies were made: see above for {}", failed.join(", "))),
    }
}
