//! What can be asked.

use super::experiments::Question;
use clap::Args;
use cringle_report::Outputs;
use cringle_report::failure::Failure;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cringle bench all                           under the current directory
  cringle bench all --json results.json /mnt/nvme
  cringle bench all --html report.html        a page with plots of all of it
  cringle bench all --only reads,sums         these questions and no others
  cringle bench all --json - | jq '.verdicts[] | {question, case, winner, ours_to_winner}'

Questions:
  reads    random blocks of a disk, many in flight        bench disk
  cached   random blocks of the page cache                bench disk --profile cached
  web      a small page, to 50 connections                bench http
  sums     every byte of a file and of a connection       bench sum
  copies   many small files, and some large ones          bench cp

Each is asked by the command that is shown, in a process of its own, with sizes that take about three
minutes together, and 2 to 3 GB of disk, by how many copy commands are installed: what is needed is
found out before, and nothing begins where it is not free. The data is removed after each, also after
Ctrl-C. An experiment that fails is told, and the others still run.

Exit status: 0 done, 1 an experiment failed, 2 wrong usage, 130 interrupted.";

#[derive(Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct AllArgs {
    /// Where the data is made.
    #[arg(default_value = ".", value_name = "DIR")]
    pub(super) directory: PathBuf,

    /// Which questions, as a comma list [default: all].
    #[arg(long, value_delimiter = ',', value_enum, value_name = "QUESTIONS")]
    only: Vec<Question>,

    /// Sizes so small that the figures mean nothing: does everything run here?
    #[arg(long)]
    pub(super) quick: bool,

    /// Rounds of each experiment; the figures are medians over them.
    #[arg(long, alias = "runs", default_value_t = 3, value_name = "N")]
    pub(super) repeat: usize,

    /// Chooses the content of the data, and the offsets.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) seed: u64,

    #[command(flatten)]
    pub(super) outputs: Outputs,

    /// No progress bars, and no tables but the last.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

impl AllArgs {
    pub(super) fn asks(&self, question: Question) -> bool {
        self.only.is_empty() || self.only.contains(&question)
    }

    /// What clap cannot check alone.
    pub(super) fn validate(&self) -> Result<(), Failure> {
        if self.repeat == 0 {
            return Err(Failure::usage("--repeat counts from 1"));
        }
        let shown = self.directory.display();
        match std::fs::metadata(&self.directory) {
            Ok(there) if there.is_dir() => Ok(()),
            Ok(_) => Err(Failure::failed(format!("{shown} is no directory"))),
            Err(error) => Err(Failure::failed(format!("cannot look at {shown}: {error}"))),
        }
    }
}
