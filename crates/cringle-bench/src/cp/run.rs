//! Runs the tools in turns; each copies to a new directory.

use super::args::{Cell, CpArgs};
use super::tools::{self, Candidate, Tool};
use super::trees::{self, Shape};
use super::workspace::Workspace;
use super::{Block, Line, verify};
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
pub(super) fn blocks(args: &CpArgs, tools: &[Tool]) -> Vec<Block> {
    let block = |cell: Cell| Block {
        cell,
        lines: tools::candidates(tools, cell.regime).into_iter().map(Line::new).collect(),
    };
    args.cells().into_iter().map(block).collect()
}

pub(super) fn measure(
    args: &CpArgs,
    workspace: &Workspace,
    blocks: &mut [Block],
    notes: &mut Notes,
    progress: &Progress,
) -> Result<(), Failure> {
    make_trees(blocks, workspace, progress)?;
    let runs: usize = blocks.iter().map(|block| block.lines.len() * args.rounds.total()).sum();
    let bar = progress.runs(runs);
    let mut bench = Bench { args, workspace, notes, bar, serial: 0 };
    for block in blocks {
        bench.block(block)?;
    }
    bench.bar.finish_and_clear();
    Ok(check_interrupt()?)
}

/// Creates all trees before the first run, so that none is created while a tool is measured.
fn make_trees(blocks: &[Block], workspace: &Workspace, progress: &Progress) -> Result<(), Failure> {
    let shapes = rounds::distinct(blocks.iter().map(|block| block.cell.shape));
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

pub(super) fn memory_note(blocks: &[Block], machine: &Machine, notes: &mut Notes) {
    let warm = blocks.iter().filter(|block| !block.cell.regime.is_cold());
    let largest = warm.map(|block| 2 * block.cell.shape.bytes()).max().unwrap_or(0);
    if machine.memory_bytes.is_some_and(|memory| memory < largest) {
        notes.add("a tree and its copy do not fit into memory: `warm` partly reads from the disk");
    }
}

struct Bench<'a> {
    args: &'a CpArgs,
    workspace: &'a Workspace,
    notes: &'a mut Notes,
    bar: ProgressBar,
    /// The number of copies so far.
    serial: u64,
}

impl Bench<'_> {
    fn block(&mut self, block: &mut Block) -> Result<(), Failure> {
        let cell = block.cell;
        if !cell.regime.is_cold() {
            self.warm(&cell.shape)?;
        }
        for (round, is_measured) in self.args.rounds.all() {
            for index in rounds::of_round(round, block.lines.len()) {
                self.turn(&cell, &mut block.lines[index], is_measured)?;
            }
        }
        Ok(())
    }

    fn turn(&mut self, cell: &Cell, line: &mut Line, counts: bool) -> Result<(), Failure> {
        check_interrupt()?;
        let (tree, regime) = (cell.tree.name().to_uppercase(), cell.regime.describe());
        self.bar.set_message(format!("{tree}, {regime}: {}", line.subject.label));
        if line.subject.error.is_none() {
            self.prepare(cell)?;
            match self.copy(cell, &line.subject) {
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

    fn copy(&mut self, cell: &Cell, candidate: &Candidate) -> Result<Usage, String> {
        self.serial += 1;
        let (source, copy) =
            (self.workspace.source(&cell.shape), self.workspace.fresh(self.serial));
        let sync = candidate.then_sync.then_some(&self.workspace.directory);
        let sample = child::time(&mut candidate.command(&source, &copy), sync)?;
        verify::verify(&cell.shape, &copy)
            .map_err(|why| format!("it reported success, but {why}"))?;
        if cell.shape.is_emptied() {
            trees::empty(&cell.shape, &copy)
                .map_err(|error| format!("its copy cannot be emptied: {error}"))?;
        }
        Ok(sample)
    }

    /// Writes out what other tools have left dirty, and drops the caches in a cold regime.
    fn prepare(&mut self, cell: &Cell) -> Result<(), Failure> {
        child::sync_filesystem(&self.workspace.directory)
            .map_err(Failure::because("cannot sync the file system"))?;
        if cell.regime.is_cold() && cache::evict_everything_and_inodes().is_err() {
            self.notes.add(
                "dropping all caches needs root: the pages of each file were dropped, but inodes \
                 and directories stayed in memory, so `cold` is faster than it should be",
            );
            self.each_source_file(&cell.shape, |file| cache::evict(&file))?;
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
