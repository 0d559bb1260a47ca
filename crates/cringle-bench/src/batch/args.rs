//! The command line of `bench batch`, and the help that teaches it.

use clap::{Args, ValueEnum};
use cringle_report::Outputs;
use std::path::PathBuf;

const BATCH_EXAMPLES: &str = "\
Examples:
  cringle bench batch high data.bin           the public API, with O_DIRECT
  cringle bench batch low data.bin            the ring beneath it
  cringle bench batch high data.bin --workers 2
  cringle bench batch high data.bin --cached  through the page cache

FILE is only read. A gibibyte for it: head -c 1G /dev/urandom > data.bin

The parameters are those of blockio-uring's benchmark (Haskell), so that figures can be laid side
by side; but the clock stops when the last thread is done, where that one stops at the first.";

#[derive(Args)]
#[command(after_help = BATCH_EXAMPLES, args_override_self = true)]
pub struct BatchArgs {
    /// `low`: the bare ring; `high`: BlockIo, from several submitters.
    #[arg(value_enum)]
    pub level: Level,

    /// The file to read.
    pub file: PathBuf,

    /// Through the page cache instead of with O_DIRECT.
    #[arg(long)]
    pub cached: bool,

    /// Rings, each with a thread of its own.
    #[arg(long, alias = "numjobs", default_value_t = 1, value_name = "N")]
    pub workers: usize,

    /// Who submits in `high`: four of them for each worker.
    #[arg(long, value_enum, default_value = "threads", value_name = "WHO")]
    pub submitters: Submitters,

    /// Rounds; fio and we take turns, and the figures are those of the median round.
    #[arg(long, alias = "runs", default_value_t = 1, value_name = "N")]
    pub repeat: usize,

    /// Rounds before, that do not count.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub warmup: usize,

    /// Chooses the offsets.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,

    /// Tie each worker to a core of its own.
    #[arg(long)]
    pub pin: bool,

    /// Do not run fio beside it.
    #[arg(long)]
    pub no_fio: bool,

    #[command(flatten)]
    pub outputs: Outputs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    Low,
    High,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Submitters {
    /// OS threads.
    Threads,
    /// Fibers of a runtime with as many workers.
    Fibers,
}
