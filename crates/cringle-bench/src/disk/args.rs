//! The command line of `bench disk`, and the help that teaches it.

use super::job::Profile;
use super::plan::Direction;
use super::strategies::{ALL, Strategy};
use clap::Args;
use cringle_report::failure::Failure;
use cringle_report::{Outputs, units};
use std::path::PathBuf;

const DISK_EXAMPLES: &str = "\
Examples:
  cringle bench disk                          the device under the current directory, at six queue depths
  cringle bench disk --qd 32 /mnt/nvme        one depth, on another file system
  cringle bench disk --profile cached --block 64 --fixed --strategies uring,batch,fio
                                              pure overhead: the page cache, 64 bytes at a time
  cringle bench disk --profile cached --threads 1,2 --qd 32
                                              does a second core help?
  cringle bench disk --profile wal --qd 1,8,64
                                              commits per second of a write-ahead log
  cringle bench disk --html report.html       tables and plots, for a browser
  cringle bench disk --json - /dev/nvme0n1 | jq '.runs[] | {strategy, queue_depth, iops}'
                                              a whole device, read only

Profiles:
  direct        random blocks with O_DIRECT: the device itself
  cached        random blocks of a file in the page cache: nothing waits, so this is overhead
  buffered-seq  in sequence, through an emptied page cache: the kernel reads ahead (128 KiB blocks)
  wal           N committers (N = queue depth) append a block and fdatasync it

Without PATH, or with a directory, the file is temporary and nameless: it is gone when the command
is, however that ends. The checksum over all reads must be the same for every strategy.

Exit status: 0 done, 1 failed (a wrong checksum, an I/O error), 2 wrong usage, 130 interrupted.";

#[derive(Args)]
#[command(after_help = DISK_EXAMPLES, args_override_self = true)]
pub struct DiskArgs {
    /// A directory (a temporary file is made there), a file, or a block device.
    #[arg(default_value = ".")]
    pub path: PathBuf,

    /// What to measure, as a comma list.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "direct")]
    pub profile: Vec<Profile>,

    /// Which ways to compare, as a comma list [default: all].
    #[arg(long, value_delimiter = ',', value_enum)]
    pub strategies: Vec<Strategy>,

    /// Queue depths: operations in flight per thread, as a comma list.
    #[arg(
        long,
        alias = "iodepth",
        value_delimiter = ',',
        default_value = "1,4,16,32,64,128",
        value_name = "N"
    )]
    pub qd: Vec<usize>,

    /// OS threads, or workers where there are fibers, as a comma list [default: 1; for `threads`
    /// as many as the queue depth]
    #[arg(long, alias = "numjobs", value_delimiter = ',', value_name = "N")]
    pub threads: Vec<usize>,

    /// Read, write, or both; writes go to the temporary file, or to PATH with --destroy.
    #[arg(long, value_enum, default_value = "read", value_name = "WHAT")]
    pub rw: Direction,

    /// Bytes of one operation [default: 4k; for `buffered-seq` 128k].
    #[arg(long, alias = "bs", value_parser = units::parse_size, value_name = "SIZE")]
    pub block: Option<u64>,

    /// Bytes of the temporary files together [default: 1GiB], or the part of PATH that is used
    /// [default: all].
    #[arg(long, value_parser = units::parse_size)]
    pub size: Option<u64>,

    /// So many temporary files.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub files: usize,

    /// Operations per run [default: 20,000 direct, 100,000 cached, the whole file buffered-seq,
    /// 1,000 wal].
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    pub ops: Option<usize>,

    /// Measure each run for this long instead of by operations.
    #[arg(long, alias = "runtime", value_name = "S")]
    pub seconds: Option<f64>,

    /// Rounds; the figures are medians over them.
    #[arg(long, alias = "runs", default_value_t = 3, value_name = "N")]
    pub repeat: usize,

    /// Shorter rounds before, that do not count.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub warmup: usize,

    /// Chooses the offsets.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,

    /// Registered files and buffers for `uring`, `batch` and `fio`.
    #[arg(long)]
    pub fixed: bool,

    /// Poll the device for completions in `uring` and `batch` (IORING_SETUP_IOPOLL); `batch` goes
    /// through a BlockIo then. Where the device has no queues for it, says how to get them. For
    /// `--profile direct`.
    #[arg(long, conflicts_with = "fixed")]
    pub iopoll: bool,

    /// Tie each thread or worker to a core of its own, while there are enough. Not by default:
    /// a thread on another core than the device's interrupts was measured at two thirds of the
    /// rate.
    #[arg(long)]
    pub pin: bool,

    /// Allow writing to a PATH that exists: its content is lost.
    #[arg(long)]
    pub destroy: bool,

    #[command(flatten)]
    pub outputs: Outputs,

    /// No progress bar.
    #[arg(short, long)]
    pub quiet: bool,
}

/// What is measured when `--threads` is not given.
const ONE_THREAD: [usize; 1] = [1];
const MAX_IN_FLIGHT: usize = 4096;

impl DiskArgs {
    pub fn strategies(&self) -> Vec<Strategy> {
        let chosen = if self.strategies.is_empty() { &ALL[..] } else { &self.strategies[..] };
        // In the order of the table, whatever the order that they were named in.
        ALL.into_iter().filter(|strategy| chosen.contains(strategy)).collect()
    }

    /// Whether the user asked for it by name.
    pub fn names(&self, strategy: Strategy) -> bool {
        self.strategies.contains(&strategy)
    }

    pub fn profiles(&self) -> Vec<Profile> {
        let mut all = self.profile.clone();
        let mut seen = Vec::new();
        all.retain(|profile| {
            !seen.contains(profile) && {
                seen.push(*profile);
                true
            }
        });
        all
    }

    pub fn thread_counts(&self) -> Vec<usize> {
        if self.threads.is_empty() { ONE_THREAD.to_vec() } else { self.threads.clone() }
    }

    pub fn block_of(&self, profile: Profile) -> usize {
        let usual = if profile == Profile::BufferedSeq { 128 << 10 } else { 4 << 10 };
        self.block.unwrap_or(usual) as usize
    }

    /// What clap cannot check alone.
    pub fn validate(&self) -> Result<(), Failure> {
        let bad = |text: String| Err(Failure::usage(text));
        let most = self.thread_counts().into_iter().max().unwrap_or(1);
        let deepest = self.qd.iter().copied().max().unwrap_or(1);
        if self.qd.contains(&0) || self.threads.contains(&0) {
            return bad("--qd and --threads count from 1".into());
        }
        if most.saturating_mul(deepest) > MAX_IN_FLIGHT {
            return bad(format!("--qd times --threads may be {MAX_IN_FLIGHT} at most"));
        }
        if self.repeat == 0 || self.files == 0 || self.ops == Some(0) {
            return bad("--repeat, --files and --ops count from 1".into());
        }
        if self.iopoll && self.profiles() != [Profile::Direct] {
            let text = "--iopoll polls the device, which only O_DIRECT asks: use --profile direct";
            return bad(text.into());
        }
        if self.seconds.is_some_and(|seconds| !(seconds > 0.0 && seconds <= 86_400.0)) {
            return bad("--seconds must be more than 0, and a day at most".into());
        }
        match self.block {
            Some(block) if block < 8 || !block.is_multiple_of(8) || block > 1 << 30 => {
                bad("--block must be a multiple of 8 bytes, at most 1 GiB".into())
            }
            _ => Ok(()),
        }
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
    fn fios_words_are_understood() {
        let args = disk(&["--bs", "64k", "--iodepth", "8", "--numjobs", "2", "--runtime", "1.5"]);
        assert_eq!((args.block, args.qd, args.threads), (Some(65536), vec![8], vec![2]));
        assert_eq!(args.seconds, Some(1.5));
    }

    #[test]
    fn strategies_keep_the_order_of_the_table() {
        let args = disk(&["--strategies", "uring,sync"]);
        assert_eq!(args.strategies(), [Strategy::Sync, Strategy::Uring]);
        assert_eq!(disk(&[]).strategies(), ALL);
    }

    #[test]
    fn nonsense_is_refused_as_usage() {
        for arguments in [
            &["--qd", "0"][..],
            &["--qd", "128", "--threads", "64"],
            &["--repeat", "0"],
            &["--seconds", "0"],
            &["--seconds", "1e300"],
            &["--seconds", "inf"],
            &["--seconds", "nan"],
            &["--block", "12"],
        ] {
            let failure = disk(arguments).validate().unwrap_err();
            assert_eq!(failure.status, cringle_report::failure::USAGE, "{arguments:?}");
        }
        assert!(disk(&["--profile", "cached,cached,wal"]).validate().is_ok());
        assert_eq!(disk(&["--profile", "cached,cached,wal"]).profiles().len(), 2);
    }
}
