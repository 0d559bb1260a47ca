//! The command line of `bench cp`, and the cases (a tree in a regime) that it selects.

use super::trees::Shape;
use crate::experiment::{Experiment, Report};
use crate::rounds::{self, Rounds};
use clap::{Args, ValueEnum, value_parser};
use cringle_report::Outputs;
use cringle_report::failure::Failure;
use cringle_report::units;
use serde::Serialize;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cringle bench cp
      Copy both trees, warm and cold; takes some minutes and 10 GB
  cringle bench cp --tree a --regime warm
      Copy small files within the page cache
  cringle bench cp --files 5000 --tree a
      Get a quick impression
  cringle bench cp --tools cp,cringle,fcp
      Compare these commands only
  cringle bench cp --tool 'cpx=cpx -r {src} {dst}'
      Compare with another command, too
  cringle bench cp --tree b --tool '4m=cringle cp -r --block-size 4m'
      Is another block size better for large files?
  cringle bench cp --json - | jq '.runs[] | {tree, regime, tool, ratios}'
      Print the ratios

Trees, with 5 levels of directories and 5 files in each directory:
  a  97,655 files of 4 KiB (cold: 19,530): the cost besides the bytes
  b  780 files of 1 MiB: the cost of the bytes

Regimes:
  warm          the source is in memory, the copy perhaps too: only system calls
  cold-sync     caches are dropped; the time includes a sync of the file system
  cold-durable  caches are dropped; each file and directory is synced

In `cold-durable`, a tool without an --fsync option is followed by `find … -exec sync {} +`; `cp` \
is also measured with one sync of the file system.

The tools take turns. Each copies to a new directory, and its copy is verified: all directories, \
all sizes, the content of a sample. No file is removed before the last run, because ext4 avoids \
inodes that were deleted in the last seconds, which slows down every tool that creates files. For \
the same reason, wait a minute between two calls of this command.

All files are in a directory `cringle-cp-…` below DIRECTORY, which is removed at the end, also \
after Ctrl-C, but not after SIGKILL.

Exit status: 0 success, 1 failure (a tool failed, or its copy is incomplete), 2 wrong usage, \
130 interrupted.";

#[derive(Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct CpArgs {
    /// Where to create the trees and the copies.
    #[arg(default_value = ".")]
    pub(super) directory: PathBuf,

    /// Trees, as a comma-separated list.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "a,b", value_name = "TREE")]
    pub(super) tree: Vec<Tree>,

    /// Regimes, as a comma-separated list.
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "warm,cold-sync,cold-durable",
        value_name = "REGIME"
    )]
    regime: Vec<Regime>,

    /// Files in each tree, in every regime [default: see below].
    #[arg(long, value_parser = value_parser!(u64).range(1..=u32::MAX.into()), value_name = "N")]
    files: Option<u64>,

    /// Divide the default number of files by N.
    #[arg(
        long,
        default_value_t = 1,
        value_parser = value_parser!(u64).range(1..),
        value_name = "N",
        conflicts_with = "files"
    )]
    part: u64,

    /// Bytes of each file [default: 4k in tree a, 1m in tree b].
    #[arg(long, value_parser = units::parse_size, value_name = "SIZE")]
    file_size: Option<u64>,

    /// Commands to compare, as a comma-separated list of cp, cringle, rsync, tar, cpz, fcp, xcp and
    /// names given by --tool [default: all that are installed].
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(super) tools: Vec<String>,

    /// Another command, run by `sh`; repeatable. {src} is the tree and {dst} the copy, which does
    /// not exist yet; without either, both are appended.
    #[arg(long, value_name = "NAME=COMMAND")]
    pub(super) tool: Vec<String>,

    #[command(flatten)]
    pub(super) rounds: Rounds<3, 0>,

    /// Seed of the files' content.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    #[command(flatten)]
    pub(crate) outputs: Outputs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tree {
    /// Many small files.
    A,
    /// Fewer large files.
    B,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Regime {
    Warm,
    ColdSync,
    ColdDurable,
}

impl Regime {
    pub(super) fn is_cold(self) -> bool {
        self != Regime::Warm
    }

    /// Describes the regime in a title.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Regime::Warm => "warm",
            Regime::ColdSync => "cold, then sync",
            Regime::ColdDurable => "cold, each file durable",
        }
    }
}

/// One table: a tree in a regime.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CopyCase {
    pub(super) tree: Tree,
    pub(super) regime: Regime,
    pub(super) shape: Shape,
}

impl Experiment for CpArgs {
    fn measure(&self) -> Result<Report, Failure> {
        crate::unless_interrupted(|| super::measure(self))
    }
}

impl CpArgs {
    /// Returns the cases, tree by tree; within a tree, warm comes first.
    pub(super) fn cases(&self) -> Vec<CopyCase> {
        let mut cases = Vec::new();
        for tree in rounds::selected(Tree::value_variants(), &self.tree) {
            for regime in rounds::selected(Regime::value_variants(), &self.regime) {
                cases.push(CopyCase { tree, regime, shape: self.shape(tree, regime) });
            }
        }
        cases
    }

    fn shape(&self, tree: Tree, regime: Regime) -> Shape {
        let (files, bytes) = match tree {
            Tree::A if regime.is_cold() => (19_530, 4 << 10),
            Tree::A => (97_655, 4 << 10),
            Tree::B => (780, 1 << 20),
        };
        let files = self.files.unwrap_or((files / self.part).max(1));
        Shape::new(files, self.file_size.unwrap_or(bytes), self.seed)
    }
}
