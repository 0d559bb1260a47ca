//! The command line of `bench batch`.

use super::SUBMITTERS_PER_WORKER;
use super::via::Via;
use crate::experiment::{Experiment, Report};
use crate::rounds::{Rounds, up_to};
use clap::{Args, ValueEnum};
use cringle_report::Outputs;
use cringle_report::failure::Failure;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cringle bench batch high data.bin
      Measure the public API, with O_DIRECT
  cringle bench batch low data.bin
      Measure the ring beneath it
  cringle bench batch high data.bin --workers 2
      Use two rings
  cringle bench batch high data.bin --cached
      Read through the page cache
  cringle bench batch high data.bin --cached --warm --via c --repeat 9
      Measure what the C interface costs
  cringle bench batch high data.bin --via haskell --via-program OUT/bench
      Measure what the Haskell binding costs (bindings/haskell/build makes OUT/bench)
  cringle bench batch high data.bin --via python
      Measure what the Python package costs (pip install ./bindings/python)

FILE is only read. To create one of 1 GiB: head -c 1G /dev/urandom > data.bin

The parameters are those of the benchmark of blockio-uring (Haskell), so that the figures are \
comparable. One thing differs: the clock stops with the last thread, not with the first one. \
Rounds alternate with those of fio and of --via; the figures are those of the median round.";

#[derive(Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct BatchArgs {
    /// `low`: the bare ring; `high`: BlockIo, with several submitters.
    #[arg(value_enum)]
    pub(super) level: Level,

    /// The file to read.
    pub(crate) file: PathBuf,

    /// Read through the page cache instead of with O_DIRECT.
    #[arg(long)]
    pub(super) cached: bool,

    /// Read the file into the page cache before each round, instead of dropping it.
    #[arg(long, requires = "cached")]
    pub(super) warm: bool,

    /// Rings, each with a thread of its own.
    #[arg(
        long,
        alias = "numjobs",
        default_value_t = 1,
        value_parser = up_to(1024),
        value_name = "N"
    )]
    pub(super) workers: usize,

    /// Measure `high` by another language, too, in alternating rounds.
    #[arg(long, value_enum, value_name = "LANGUAGE")]
    pub(super) via: Option<Via>,

    /// The program of --via, with arguments. It prints one line of JSON.
    #[arg(long, requires = "via", value_name = "COMMAND")]
    pub(super) via_program: Option<String>,

    #[command(flatten)]
    pub(super) rounds: Rounds<1, 0>,

    /// Seed of the offsets.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) seed: u64,

    /// Do not compare with fio.
    #[arg(long)]
    pub(super) no_fio: bool,

    #[command(flatten)]
    pub(crate) outputs: Outputs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Level {
    Low,
    High,
}

impl BatchArgs {
    pub(super) fn submitters(&self) -> usize {
        self.workers * SUBMITTERS_PER_WORKER
    }
}

impl Experiment for BatchArgs {
    fn validate(&self) -> Result<(), Failure> {
        if self.via.is_some() && self.level == Level::Low {
            return Err(Failure::usage("--via measures `high`"));
        }
        Ok(())
    }

    fn measure(&self) -> Result<Report, Failure> {
        super::measure(self)
    }
}
