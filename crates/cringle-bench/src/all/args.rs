//! The command line of `bench all`.

use super::experiments::Question;
use crate::experiment::{Experiment, Report};
use crate::rounds::{MOST_ROUNDS, up_to};
use clap::Args;
use cringle_report::Outputs;
use cringle_report::failure::{Failure, fail};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cringle bench all
      Use the current directory
  cringle bench all --json results.json /mnt/nvme
      Use another file system, and write the results as JSON
  cringle bench all --html report.html
      Write a page with all plots
  cringle bench all --only reads,sums
      Answer these questions only
  cringle bench all --json - | jq '.verdicts[] | {question, winner}'
      Print the winners

Questions:
  reads    random blocks of a disk, many in flight (bench disk)
  cached   random blocks from the page cache (bench disk --profile cached)
  web      a small page, for 50 connections (bench http)
  sums     all bytes of a file and of a connection (bench sum)
  copies   many small files, and some large ones (bench cp)

Each command runs in a process of its own. All of them take about three minutes, and 2 to 3 GB of \
disk space, depending on the copy commands that are installed. The space is checked first. The \
data of each command is removed when it ends, also after Ctrl-C. If an experiment fails, the \
others still run. With --quiet, only the last table is printed.

Exit status: 0 success, 1 an experiment failed, 2 wrong usage, 130 interrupted.";

#[derive(Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct AllArgs {
    /// Where to create the data.
    #[arg(default_value = ".", value_name = "DIR")]
    pub(super) directory: PathBuf,

    /// Questions, as a comma-separated list [default: all].
    #[arg(long, value_delimiter = ',', value_enum, value_name = "QUESTIONS")]
    only: Vec<Question>,

    /// Check that everything runs, with sizes too small for meaningful figures.
    #[arg(long)]
    pub(super) quick: bool,

    /// Rounds of each experiment; the figures are their medians.
    #[arg(
        long,
        alias = "runs",
        default_value_t = 3,
        value_parser = up_to(MOST_ROUNDS),
        value_name = "N"
    )]
    pub(super) repeat: usize,

    /// Seed of the data and the offsets.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) seed: u64,

    #[command(flatten)]
    pub(crate) outputs: Outputs,
}

impl AllArgs {
    pub(super) fn asks(&self, question: Question) -> bool {
        self.only.is_empty() || self.only.contains(&question)
    }
}

impl Experiment for AllArgs {
    fn validate(&self) -> Result<(), Failure> {
        let shown = self.directory.display();
        match std::fs::metadata(&self.directory) {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(_) => fail(format!("{shown}: not a directory")),
            Err(error) => fail(format!("{shown}: cannot examine: {error}")),
        }
    }

    /// The children remove their own files; this process passes a signal on and waits.
    fn measure(&self) -> Result<Report, Failure> {
        crate::unless_interrupted(|| super::measure(self))
    }
}
