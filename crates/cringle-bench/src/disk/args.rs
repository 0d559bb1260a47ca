//! The command line of `bench disk`.

use super::job::Profile;
use super::plan::Direction;
use super::strategies::Strategy;
use crate::experiment::{Experiment, Report};
use crate::rounds::{self, Rounds, parse_seconds, up_to};
use clap::{Args, ValueEnum};
use cringle_report::failure::Failure;
use cringle_report::{Outputs, units};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cringle bench disk
      Measure the device under the current directory, at six queue depths
  cringle bench disk --qd 32 /mnt/nvme
      Measure another file system, at one depth
  cringle bench disk --profile cached --block 64 --fixed \\
      --strategies uring,batch,fio
      Measure pure overhead: the page cache, 64 bytes at a time
  cringle bench disk --profile cached --threads 1,2 --qd 32
      Does a second core help?
  cringle bench disk --profile wal --qd 1,8,64
      Measure the commits per second of a write-ahead log
  cringle bench disk --html report.html
      Write tables and plots for a browser
  cringle bench disk --json - /dev/nvme0n1 | jq '.runs[] | {strategy, iops}'
      Read a whole device

Profiles:
  direct  random blocks with O_DIRECT: the device itself
  cached  random blocks from the page cache: pure overhead
  wal     N committers (N = queue depth); each append is synced

Without PATH, or with a directory, the test file has no name and vanishes with the command, even \
if the command is killed. A warm-up round does an eighth of the operations. The checksum over all \
reads must be the same for every strategy.

Exit status: 0 success, 1 failure (a wrong checksum, an I/O error), 2 wrong usage, 130 \
interrupted.";

#[derive(Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct DiskArgs {
    /// A directory (for a temporary file), a file, or a block device.
    #[arg(default_value = ".")]
    pub path: PathBuf,

    /// What to measure, as a comma-separated list.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "direct")]
    profile: Vec<Profile>,

    /// Ways to compare, as a comma-separated list [default: all that support the profile].
    #[arg(long, value_delimiter = ',', value_enum)]
    strategies: Vec<Strategy>,

    /// Queue depths (operations in flight per thread), as a comma-separated list.
    #[arg(
        long,
        alias = "iodepth",
        value_delimiter = ',',
        value_parser = up_to(MAX_IN_FLIGHT),
        default_value = "1,4,16,32,64,128",
        value_name = "N"
    )]
    pub qd: Vec<usize>,

    /// OS threads, or workers of a runtime, as a comma-separated list [default: 1; `threads`: the
    /// queue depth].
    #[arg(
        long,
        alias = "numjobs",
        value_delimiter = ',',
        value_parser = up_to(MAX_IN_FLIGHT),
        value_name = "N"
    )]
    pub(super) threads: Vec<usize>,

    /// Read or write; writes go to the temporary file, or to PATH with --destroy.
    #[arg(long, value_enum, default_value = "read", value_name = "DIRECTION")]
    pub(super) rw: Direction,

    /// Bytes of an operation.
    #[arg(
        long,
        alias = "bs",
        value_parser = units::parse_size,
        default_value = "4KiB",
        value_name = "SIZE"
    )]
    block: u64,

    /// Bytes of the temporary file [default: 1GiB], or the part of PATH to use [default: all].
    #[arg(long, value_parser = units::parse_size)]
    pub(crate) size: Option<u64>,

    /// Operations per run [default: `direct` 20,000, `cached` 100,000, `wal` 1,000].
    #[arg(long, value_parser = up_to(MOST_OPS), value_name = "N", conflicts_with = "seconds")]
    pub(super) ops: Option<usize>,

    /// Length of a run in seconds, instead of a number of operations.
    #[arg(long, alias = "runtime", value_parser = parse_seconds, value_name = "S")]
    pub seconds: Option<f64>,

    #[command(flatten)]
    pub(super) rounds: Rounds<3, 1>,

    /// Seed of the offsets.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) seed: u64,

    /// Use registered files and buffers in `uring`, `batch` and `fio`.
    #[arg(long)]
    pub(super) fixed: bool,

    /// Poll the device for completions in `uring` and `batch` (IORING_SETUP_IOPOLL), which then
    /// uses a BlockIo; only for `--profile direct`. Explains what to do if the device has no polled
    /// queues.
    #[arg(long, conflicts_with = "fixed")]
    pub(super) iopoll: bool,

    /// Allow overwriting an existing PATH; its content is lost.
    #[arg(long)]
    pub(super) destroy: bool,

    #[command(flatten)]
    pub(crate) outputs: Outputs,
}

/// The most operations of a run: the plan takes 40 bytes for each.
const MOST_OPS: u64 = 100_000_000;

const MAX_IN_FLIGHT: u64 = 4096;

impl DiskArgs {
    /// The chosen strategies, in the order of the table.
    pub(super) fn strategies(&self) -> Vec<Strategy> {
        rounds::selected(Strategy::value_variants(), &self.strategies)
    }

    /// Whether the command line names this strategy.
    pub(super) fn names(&self, strategy: Strategy) -> bool {
        self.strategies.contains(&strategy)
    }

    pub(super) fn profiles(&self) -> Vec<Profile> {
        rounds::distinct(self.profile.iter().copied())
    }

    pub(super) fn thread_counts(&self) -> Vec<usize> {
        if self.threads.is_empty() { vec![1] } else { self.threads.clone() }
    }

    pub(super) fn block(&self) -> usize {
        self.block as usize
    }

    /// Checks what clap cannot check.
    pub fn validate(&self) -> Result<(), Failure> {
        let bad = |text: String| Err(Failure::usage(text));
        let most = self.thread_counts().into_iter().max().unwrap_or(1);
        let deepest = self.qd.iter().copied().max().unwrap_or(1);
        if (most * deepest) as u64 > MAX_IN_FLIGHT {
            return bad(format!("--qd times --threads must be at most {MAX_IN_FLIGHT}"));
        }
        if self.iopoll && self.profiles() != [Profile::Direct] {
            let text = "--iopoll needs O_DIRECT: use --profile direct";
            return bad(text.into());
        }
        if self.block < 8 || !self.block.is_multiple_of(8) || self.block > 1 << 30 {
            return bad("--block must be a multiple of 8 bytes, and at most 1 GiB".into());
        }
        Ok(())
    }
}

impl Experiment for DiskArgs {
    fn validate(&self) -> Result<(), Failure> {
        self.validate()
    }

    fn measure(&self) -> Result<Report, Failure> {
        super::measure(self).map(super::report::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bench;

    fn disk(arguments: &[&str]) -> DiskArgs {
        match Bench::parse(&[&["disk"], arguments].concat()).unwrap_or_else(|e| panic!("{e}")) {
            Bench::Disk(args) => *args,
            _ => unreachable!("it is bench disk"),
        }
    }

    #[test]
    fn options_of_fio_are_aliases() {
        let args = disk(&["--bs", "64k", "--iodepth", "8", "--numjobs", "2", "--runtime", "1.5"]);
        assert_eq!((args.block, args.qd, args.threads), (65536, vec![8], vec![2]));
        assert_eq!(args.seconds, Some(1.5));
    }

    #[test]
    fn strategies_keep_the_order_of_the_table() {
        let args = disk(&["--strategies", "uring,sync"]);
        assert_eq!(args.strategies(), [Strategy::Sync, Strategy::Uring]);
        assert_eq!(disk(&[]).strategies(), Strategy::value_variants());
    }

    #[test]
    fn contradictions_are_refused_as_usage() {
        for arguments in [&["--qd", "128", "--threads", "64"][..], &["--block", "12"]] {
            let failure = disk(arguments).validate().unwrap_err();
            assert_eq!(failure.status, cringle_report::failure::USAGE, "{arguments:?}");
        }
        for (option, values) in [
            ("--qd", &["0", "1,0", "4097"][..]),
            ("--repeat", &["0"]),
            ("--seconds", &["0", "-1", "1e300", "inf", "nan"]),
        ] {
            for value in values {
                assert!(Bench::parse(&["disk", option, value]).is_err(), "{option} {value}");
            }
        }
        assert!(disk(&["--profile", "cached,cached,wal"]).validate().is_ok());
        assert_eq!(disk(&["--profile", "cached,cached,wal"]).profiles().len(), 2);
    }
}
