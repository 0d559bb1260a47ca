//! The command line of `bench sum`.

use super::feed;
use crate::experiment::{Experiment, Report};
use crate::rounds::{self, Rounds, parse_bytes};
use clap::{Args, ValueEnum};
use cringle_report::Outputs;
use cringle_report::failure::Failure;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cringle bench sum
      Sum 256 MiB from the page cache
  cringle bench sum --cache warm,cold --sizes 64m,2g /mnt/nvme
      Compare the page cache with the device
  cringle bench sum --tcp --sizes 1g
      Sum a connection that another process feeds
  cringle bench sum --tcp --message 64
      The same, sent in small pieces
  cringle bench sum --json - | jq '.runs[] | {strategy, seconds}'
      Print the time of each run

Without PATH, or with a directory, the test file has no name and vanishes with the command, even \
if the command is killed. Each read of 32 KiB begins after the one before it has ended; all sums \
must be equal.

Exit status: 0 success, 1 failure (a wrong sum, an I/O error), 2 wrong usage, 130 interrupted.";

#[derive(Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct SumArgs {
    /// A directory (for a temporary file), or a file, of which only the beginning is read.
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,

    /// Bytes to sum, as a comma-separated list.
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes, default_value = "256MiB")]
    sizes: Vec<u64>,

    /// Ways to compare, as a comma-separated list [default: all].
    #[arg(long, value_delimiter = ',', value_enum)]
    strategies: Vec<Strategy>,

    /// States of the page cache, as a comma-separated list.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "warm", conflicts_with = "tcp")]
    cache: Vec<Cache>,

    /// Sum the bytes of a TCP connection over the loopback interface instead of a file.
    #[arg(long)]
    pub(super) tcp: bool,

    /// Bytes that the other process sends in one call.
    #[arg(long, value_parser = parse_bytes, default_value = "256KiB", value_name = "BYTES")]
    pub(super) message: u64,

    #[command(flatten)]
    pub(super) rounds: Rounds<5, 1>,

    /// Seed of the temporary file's content.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) seed: u64,

    #[command(flatten)]
    pub(crate) outputs: Outputs,

    /// Be the other process: send this number of bytes to the connection that standard input is.
    #[arg(long, hide = true, value_name = "BYTES")]
    pub(super) feed: Option<u64>,
}

/// A way of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Strategy {
    /// A thread, with std.
    Sync,
    /// A task on tokio's current-thread runtime; tokio::fs reads files on another thread.
    Tokio,
    /// A fiber on a runtime with one worker.
    Fibers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Cache {
    /// The whole file is in the page cache.
    Warm,
    /// The file is not in the page cache.
    Cold,
}

impl SumArgs {
    /// The chosen strategies, in the order of the table.
    pub(super) fn strategies(&self) -> Vec<Strategy> {
        rounds::selected(Strategy::value_variants(), &self.strategies)
    }

    pub(super) fn caches(&self) -> Vec<Cache> {
        rounds::distinct(self.cache.iter().copied())
    }

    pub(crate) fn sizes(&self) -> Vec<u64> {
        rounds::distinct(self.sizes.iter().copied())
    }
}

impl Experiment for SumArgs {
    /// Sends the bytes, for a reader in another process.
    fn assist(&self) -> Option<Result<(), Failure>> {
        Some(feed::feed(self.feed?, self.message).map_err(Failure::from))
    }

    fn measure(&self) -> Result<Report, Failure> {
        super::measure(self)
    }
}
