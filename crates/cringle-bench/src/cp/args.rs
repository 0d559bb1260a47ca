//! What is measured: the options, and the cells (tree, regime) that come of them.

use super::trees::Shape;
use clap::{Args, ValueEnum};
use cringle_report::Outputs;
use cringle_report::failure::Failure;
use cringle_report::units;
use serde::Serialize;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cringle bench cp                            both trees, warm and cold: some minutes and 10 GB
  cringle bench cp --tree a --regime warm     only the page cache, only small files
  cringle bench cp --files 5000 --tree a      a quick look
  cringle bench cp --tree b --block-size 64k,256k,1m,4m
                                              which block is best for large files?
  cringle bench cp --tools cp,cringle,fcp     these and no others
  cringle bench cp --tool 'cpx=cpx -r {src} {dst}'
                                              one that is not known here
  cringle bench cp --json - | jq '.runs[] | {tree, regime, tool, ratios}'

Trees, 5 levels of directories deep, 5 files in each:
  a  97,655 files of 4 KiB (cold: 19,530)     what a copy costs besides the bytes
  b  780 files of 1 MiB                       the bytes

Regimes:
  warm          the source is in memory; the copy may be too. System calls, and no disk
  cold-sync     caches dropped; the clock runs until a sync of the file system is done
  cold-durable  caches dropped; each file and directory is fsynced: by the tool's own --fsync, or
                after it by `find … -exec sync {} +`. For `cp`, also a sync as the other way to that

Each tool copies to a place that was never used, in turn with the others, and its copy is checked:
every directory, every size, the content of a sample. Nothing is removed before the last run is
over, for ext4 avoids inodes deleted in the last seconds, and whoever creates files meanwhile (any
tool) takes 15 times longer. For the same reason wait a minute between two calls of this command.

Everything is made in a directory `cringle-cp-…` below DIRECTORY and removed again, also after
Ctrl-C. A killed command (SIGKILL) leaves it.

Exit status: 0 done, 1 failed (a tool failed, or its copy is not whole), 2 wrong usage,
130 interrupted.";

/// Rounds when `--repeat` is not given.
const ROUNDS: usize = 3;

#[derive(Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct CpArgs {
    /// Where the trees and the copies are made.
    #[arg(default_value = ".")]
    pub directory: PathBuf,

    /// Which trees, as a comma list.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "a,b", value_name = "TREE")]
    pub tree: Vec<Tree>,

    /// Which regimes, as a comma list.
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "warm,cold-sync,cold-durable",
        value_name = "REGIME"
    )]
    pub regime: Vec<Regime>,

    /// Files in each tree, in every regime [default: as below].
    #[arg(long, value_name = "N")]
    pub files: Option<u64>,

    /// Only this part of the usual number of files: 10 is a tenth.
    #[arg(long, default_value_t = 1, value_name = "N", conflicts_with = "files")]
    pub part: u64,

    /// Bytes of each file [default: 4k in tree a, 1m in tree b].
    #[arg(long, value_parser = units::parse_size, value_name = "SIZE")]
    pub file_size: Option<u64>,

    /// Which commands to compare, as a comma list of cp, cringle, rsync, tar, cpz, fcp, xcp and
    /// the names given by --tool [default: all that are installed].
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub tools: Vec<String>,

    /// One more command, run by `sh`. {src} is the tree, {dst} the copy, which does not exist
    /// yet; without either, both are appended. May be given more than once.
    #[arg(long, value_name = "NAME=COMMAND")]
    pub tool: Vec<String>,

    /// Blocks that `cringle cp --block-size` is tried with on tree b, as a comma list.
    #[arg(
        long,
        alias = "bs",
        value_delimiter = ',',
        value_parser = units::parse_size,
        value_name = "SIZE"
    )]
    pub block_size: Vec<u64>,

    /// Rounds; the figures are medians over them.
    #[arg(long, alias = "runs", default_value_t = ROUNDS, value_name = "N")]
    pub repeat: usize,

    /// Rounds before, that do not count.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub warmup: usize,

    /// Chooses the content of the files.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,

    /// Do not ask fio what the disk can do.
    #[arg(long)]
    pub no_fio: bool,

    #[command(flatten)]
    pub outputs: Outputs,

    /// No progress bar.
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tree {
    /// Many small files.
    A,
    /// Fewer, large ones.
    B,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Regime {
    Warm,
    ColdSync,
    ColdDurable,
}

impl Tree {
    pub fn name(self) -> &'static str {
        match self {
            Tree::A => "A",
            Tree::B => "B",
        }
    }
}

impl Regime {
    pub fn cold(self) -> bool {
        self != Regime::Warm
    }

    /// For a title.
    pub fn words(self) -> &'static str {
        match self {
            Regime::Warm => "warm",
            Regime::ColdSync => "cold, then sync",
            Regime::ColdDurable => "cold, each file durable",
        }
    }
}

/// One table: a tree in a regime.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    pub tree: Tree,
    pub regime: Regime,
    pub shape: Shape,
}

impl CpArgs {
    /// What clap cannot check alone.
    pub fn validate(&self) -> Result<(), Failure> {
        let bad = |text: &str| Err(Failure::usage(text));
        if self.repeat == 0 || self.files == Some(0) || self.part == 0 {
            return bad("--repeat, --files and --part count from 1");
        }
        if self.files.is_some_and(|files| files > u64::from(u32::MAX)) {
            return bad("--files may be 4,294,967,295 at most");
        }
        if self.block_size.contains(&0) {
            return bad("--block-size must be more than 0");
        }
        Ok(())
    }

    /// Tree by tree; within one, warm comes first.
    pub fn cells(&self) -> Vec<Cell> {
        let trees = [Tree::A, Tree::B].into_iter().filter(|tree| self.tree.contains(tree));
        trees.flat_map(|tree| self.cells_of(tree)).collect()
    }

    fn cells_of(&self, tree: Tree) -> impl Iterator<Item = Cell> {
        let regimes = [Regime::Warm, Regime::ColdSync, Regime::ColdDurable];
        let chosen = regimes.into_iter().filter(|regime| self.regime.contains(regime));
        chosen.map(move |regime| Cell { tree, regime, shape: self.shape(tree, regime) })
    }

    fn shape(&self, tree: Tree, regime: Regime) -> Shape {
        let (files, bytes) = match tree {
            Tree::A if regime.cold() => (19_530, 4 << 10),
            Tree::A => (97_655, 4 << 10),
            Tree::B => (780, 1 << 20),
        };
        let files = self.files.unwrap_or((files / self.part).max(1));
        Shape::new(files, self.file_size.unwrap_or(bytes), self.seed)
    }

    pub fn rounds(&self) -> usize {
        self.warmup + self.repeat
    }
}
