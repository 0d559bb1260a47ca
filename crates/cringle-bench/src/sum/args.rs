//! What can be asked.

use super::BUFFER_BYTES;
use clap::{Args, ValueEnum};
use cringle_report::Outputs;
use cringle_report::failure::Failure;
use cringle_report::units;
use serde::Serialize;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cringle bench sum                           256 MiB, from the page cache
  cringle bench sum --cache warm,cold --sizes 64m,2g /mnt/nvme
  cringle bench sum --tcp --sizes 1g          a connection that another process feeds
  cringle bench sum --tcp --message 64        … in small pieces
  cringle bench sum --udp --message 64 --sizes 16m
                                              datagrams, one for each read
  cringle bench sum --json - | jq '.runs[] | {strategy, seconds}'

Without PATH, or with a directory, the file is temporary and nameless: it is gone when the command
is, however that ends. One read of 32 KiB follows the other; all sums must agree.

Exit status: 0 done, 1 failed (a wrong sum, an I/O error), 2 wrong usage, 130 interrupted.";

#[derive(Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct SumArgs {
    /// A directory (a temporary file is made there), or a file, of which only the beginning is read.
    #[arg(default_value = ".")]
    pub(super) path: PathBuf,

    /// How many bytes to sum, as a comma list.
    #[arg(long, value_delimiter = ',', value_parser = units::parse_size, default_value = "256MiB")]
    sizes: Vec<u64>,

    /// Which ways to compare, as a comma list [default: all].
    #[arg(long, value_delimiter = ',', value_enum)]
    strategies: Vec<Strategy>,

    /// The state of the page cache, as a comma list.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "warm", conflicts_with = "tcp")]
    cache: Vec<Cache>,

    /// Sum what comes from a TCP connection over the loopback instead of a file.
    #[arg(long)]
    pub(super) tcp: bool,

    /// Sum the datagrams of a UDP socket over the loopback. None gets lost: now and then the reader
    /// tells the sender how far it is.
    #[arg(long, conflicts_with_all = ["tcp", "cache"])]
    pub(super) udp: bool,

    /// Bytes that the other process sends at a time, without delay [default: 256KiB; --udp: 1KiB].
    #[arg(long, value_parser = units::parse_size, value_name = "BYTES")]
    message: Option<u64>,

    /// Rounds; the figures are medians over them.
    #[arg(long, alias = "runs", default_value_t = 5, value_name = "N")]
    pub(super) repeat: usize,

    /// Rounds before, that do not count.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) warmup: usize,

    /// Chooses the content of the temporary file.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) seed: u64,

    #[command(flatten)]
    pub(super) outputs: Outputs,

    /// No progress bar.
    #[arg(short, long)]
    pub(super) quiet: bool,

    /// Be the other process: send so many bytes to standard input's connection.
    #[arg(long, hide = true, value_name = "BYTES")]
    pub(super) feed: Option<u64>,
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Strategy {
    /// A plain thread and std.
    Sync,
    /// A task of tokio's current-thread runtime; files by `tokio::fs`, whose reads are a thread's.
    Tokio,
    /// A fiber of a runtime with one worker.
    Fibers,
}

const ALL: [Strategy; 3] = [Strategy::Sync, Strategy::Tokio, Strategy::Fibers];

impl Strategy {
    pub(super) fn name(self) -> &'static str {
        match self {
            Strategy::Sync => "sync",
            Strategy::Tokio => "tokio",
            Strategy::Fibers => "fibers",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Cache {
    /// All of the file is in the page cache.
    Warm,
    /// Nothing of it is.
    Cold,
}

impl Cache {
    pub(super) fn name(self) -> &'static str {
        match self {
            Cache::Warm => "warm",
            Cache::Cold => "cold",
        }
    }
}

/// In the order in which they were named, each once.
fn distinct<T: Copy + PartialEq>(all: &[T]) -> Vec<T> {
    let mut distinct = Vec::new();
    for &one in all {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}

impl SumArgs {
    pub(super) fn strategies(&self) -> Vec<Strategy> {
        let chosen = if self.strategies.is_empty() { &ALL[..] } else { &self.strategies[..] };
        // In the order of the table, whatever the order that they were named in.
        ALL.into_iter().filter(|strategy| chosen.contains(strategy)).collect()
    }

    pub(super) fn caches(&self) -> Vec<Cache> {
        distinct(&self.cache)
    }

    pub fn sizes(&self) -> Vec<u64> {
        distinct(&self.sizes)
    }

    pub(super) fn message(&self) -> u64 {
        self.message.unwrap_or(if self.udp { 1 << 10 } else { 256 << 10 })
    }

    /// What clap cannot check alone.
    pub(super) fn validate(&self) -> Result<(), Failure> {
        // A datagram that is longer than the buffer would be cut.
        let (most, words) = match self.udp {
            true => (BUFFER_BYTES as u64, "32 KiB at most for --udp"),
            false => (1 << 30, "1 GiB at most"),
        };
        if self.repeat == 0 || self.sizes.contains(&0) {
            return Err(Failure::usage("--repeat and --sizes count from 1"));
        }
        match (1..=most).contains(&self.message()) {
            true => Ok(()),
            false => Err(Failure::usage(format!("--message is 1 byte at least, and {words}"))),
        }
    }
}
