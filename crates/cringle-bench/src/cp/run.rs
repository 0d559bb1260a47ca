//! Runs the tools in turns; each copies to a new directory.

use super::args::{CopyCase, CpArgs};
use super::tools::{self, Candidate, Tool};
use super::trees::{self, Shape};
use super::workspace::Workspace;
use super::{Line, Table, verify};
use crate::child;
use crate::experiment::{Named, Notes};
use crate::meter::Usage;
use crate::rounds::{self, Progress};
use cringle_report::failure::Failure;
use cringle_report::interrupt;
use cringle_report::machine::{Machine, cache};
use indicatif::ProgressBar;
use std::fs::File;
use std::io;
use std::path::Path;

/// Returns the tables, without figures.
pub(super) fn tables(args: &CpArgs, tools: &[Tool]) -> Vec<Table> {
    let table = |case: CopyCase| Table::new(case, tools::candidates(tools, case.regime));
    args.cases().into_iter().map(table).collect()
}

pub(super) fn measure(
    args: &CpArgs,
    workspace: &Workspace,
    tables: &mut [Table],
    notes: &mut Notes,
    progress: &Progress,
) -> Result<(), Failure> {
    make_trees(tables, workspace, progress)?;
    let runs: usize = tables.iter().map(|table| table.lines.len() * args.rounds.total()).sum();
    let bar = progress.runs(runs);
    let mut bench = CopyBench { args, workspace, notes, bar, serial: 0 };
    for table in tables {
        bench.table(table)?;
    }
    bench.bar.finish_and_clear();
    Ok(check_interrupt()?)
}

/// Creates all trees before the first run, so that none is created while a tool is measured.
fn make_trees(tables: &[Table], workspace: &Workspace, progress: &Progress) -> Result<(), Failure> {
    let shapes = rounds::distinct(tables.iter().map(|table| table.case.shape));
    let bar = progress.bytes(shapes.iter().map(Shape::bytes).sum(), "making the trees");
    for shape in &shapes {
        let step = |bytes| {
            bar.inc(bytes);
            check_interrupt()
        };
        trees::make(shape, &workspace.source(shape), step)
            .map_err(Failure::because("cannot create a tree"))?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// Returns an error if a signal has interrupted the command. [`super::run()`] reports it as
/// interrupted.
fn check_interrupt() -> io::Result<()> {
    if interrupt::is_requested() {
        return Err(io::Error::other("interrupted"));
    }
    Ok(())
}

pub(super) fn memory_note(tables: &[Table], machine: &Machine, notes: &mut Notes) {
    let warm = tables.iter().filter(|table| !table.case.regime.is_cold());
    let largest = warm.map(|table| 2 * table.case.shape.bytes()).max().unwrap_or(0);
    if machine.memory_bytes.is_some_and(|memory| memory < largest) {
        notes.add("a tree and its copy do not fit into memory: `warm` partly reads from the disk");
    }
}

struct CopyBench<'a> {
    args: &'a CpArgs,
    workspace: &'a Workspace,
    notes: &'a mut Notes,
    bar: ProgressBar,
    /// The number of copies so far.
    serial: u64,
}

impl CopyBench<'_> {
    fn table(&mut self, table: &mut Table) -> Result<(), Failure> {
        let case = table.case;
        if !case.regime.is_cold() {
            self.warm(&case.shape)?;
        }
        for (round, is_measured) in self.args.rounds.all() {
            for index in rounds::of_round(round, table.lines.len()) {
                self.turn(&case, &mut table.lines[index], is_measured)?;
            }
        }
        Ok(())
    }

    fn turn(&mut self, case: &CopyCase, line: &mut Line, counts: bool) -> Result<(), Failure> {
        check_interrupt()?;
        let (tree, regime) = (case.tree.name().to_uppercase(), case.regime.describe());
        self.bar.set_message(format!("{tree}, {regime}: {}", line.subject.label));
        if line.subject.error.is_none() {
            self.prepare(case)?;
            match self.copy(case, &line.subject) {
                Ok(sample) if counts => line.samples.push(sample),
                Ok(_) => {}
                Err(why) => {
                    line.subject.error = Some(why);
                    line.samples.clear();
                }
            }
            check_interrupt()?;
        }
        self.bar.inc(1);
        Ok(())
    }

    fn copy(&mut self, case: &CopyCase, candidate: &Candidate) -> Result<Usage, String> {
        self.serial += 1;
        let (source, copy) =
            (self.workspace.source(&case.shape), self.workspace.fresh(self.serial));
        let sync = candidate.then_sync.then_some(&self.workspace.directory);
        let sample = child::time(&mut candidate.command(&source, &copy), sync)?;
        verify::verify(&case.shape, &copy)
            .map_err(|why| format!("it reported success, but {why}"))?;
        if case.shape.is_emptied() {
            trees::empty(&case.shape, &copy)
                .map_err(|error| format!("its copy cannot be emptied: {error}"))?;
        }
        Ok(sample)
    }

    /// Writes out what other tools have left dirty, and drops the caches in a cold regime.
    fn prepare(&mut self, case: &CopyCase) -> Result<(), Failure> {
        child::sync_filesystem(&self.workspace.directory)
            .map_err(Failure::because("cannot sync the file system"))?;
        if case.regime.is_cold() && cache::evict_everything().is_err() {
            self.notes.add(
                "dropping all caches needs root: the pages of each file were dropped, but inodes \
                 and directories stayed in memory, so `cold` is faster than it should be",
            );
            self.each_source_file(&case.shape, |file| cache::evict(&file))?;
        }
        Ok(())
    }

    fn warm(&mut self, shape: &Shape) -> Result<(), Failure> {
        self.bar.set_message("reading the tree into memory");
        self.each_source_file(shape, |file| cache::warm(&file, shape.file_bytes))
    }

    fn each_source_file(
        &self,
        shape: &Shape,
        each: impl Fn(File) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let checked = |path: &Path| check_interrupt().and_then(|()| each(File::open(path)?));
        trees::for_each_file(shape, &self.workspace.source(shape), checked)
            .map_err(Failure::because("cannot read the tree"))
    }
}
