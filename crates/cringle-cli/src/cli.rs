//! The command line: what can be asked, and the help that teaches it.

use crate::bench::all::AllArgs;
use crate::bench::cp::CpArgs;
use crate::bench::http::HttpArgs;
use crate::bench::job::Profile;
use crate::bench::plan::Direction;
use crate::bench::strategies::{ALL, Strategy};
use crate::bench::sum::SumArgs;
use crate::failure::Failure;
use crate::report::Outputs;
use crate::units;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Parser)]
#[command(name = "cringle", version, about, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "What is it doing? kill -USR1 PID has bench, cp and sim say on standard error which fiber waits for what."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Colours in the table.
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    pub(crate) color: Color,

    /// Write a trace of what the fibers and operations of this command do: Perfetto opens it, `cringle
    /// trace` sums it up. A command that starts others has a file for each, with its number in the name.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// Say which driver the runtime uses here, and why.
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// When standard output is a terminal and NO_COLOR is not set.
    Auto,
    Always,
    Never,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Measure: which way of doing I/O wins on this machine, and why.
    #[command(subcommand)]
    Bench(Bench),
    /// Copy files and directories: GNU's cp, on all cores.
    Cp(crate::cp::flags::Documented),
    /// Examine this machine: what it gives, what it lacks, who denies it, and what to do.
    Doctor(crate::doctor::args::DoctorArgs),
    /// Sum up a trace: who waited for what, where the time went; and draw it.
    Trace(crate::trace::TraceArgs),
    /// Test the library itself: random programs in a simulation with faults, a seed each.
    Sim(SimArgs),
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example:\n  cringle completions bash > ~/.local/share/bash-completion/completions/cringle"
    )]
    Completions { shell: clap_complete::Shell },
    /// Print the manual page, or write one for every command into a directory.
    #[command(after_help = "Example:\n  cringle man | man -l -")]
    Man {
        #[arg(long, value_name = "DIRECTORY")]
        all: Option<PathBuf>,
    },
}

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Read a file in eight ways and compare them: threads, mmap, tokio, io_uring, fibers, …
    Disk(Box<DiskArgs>),
    /// The blockio-uring benchmark: batches of random 4 KiB reads, beside fio.
    Batch(BatchArgs),
    /// Copy trees of files with every copy command there is, and compare them.
    Cp(Box<CpArgs>),
    /// Sum a file's or a connection's bytes, read by read: what a runtime costs where it cannot win.
    Sum(Box<SumArgs>),
    /// Serve a small page in six ways, and compare what a request costs: threads, epoll, tokio, …
    Http(Box<HttpArgs>),
    /// All of these in turn, with modest sizes: who wins here, by how much, and why.
    All(AllArgs),
}

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
pub(crate) struct DiskArgs {
    /// A directory (a temporary file is made there), a file, or a block device.
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,

    /// What to measure, as a comma list.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "direct")]
    pub(crate) profile: Vec<Profile>,

    /// Which ways to compare, as a comma list [default: all].
    #[arg(long, value_delimiter = ',', value_enum)]
    pub(crate) strategies: Vec<Strategy>,

    /// Queue depths: operations in flight per thread, as a comma list.
    #[arg(
        long,
        alias = "iodepth",
        value_delimiter = ',',
        default_value = "1,4,16,32,64,128",
        value_name = "N"
    )]
    pub(crate) qd: Vec<usize>,

    /// OS threads, or workers where there are fibers, as a comma list [default: 1; for `threads`
    /// as many as the queue depth]
    #[arg(long, alias = "numjobs", value_delimiter = ',', value_name = "N")]
    pub(crate) threads: Vec<usize>,

    /// Read, write, or both; writes go to the temporary file, or to PATH with --destroy.
    #[arg(long, value_enum, default_value = "read", value_name = "WHAT")]
    pub(crate) rw: Direction,

    /// Bytes of one operation [default: 4k; for `buffered-seq` 128k].
    #[arg(long, alias = "bs", value_parser = units::parse_size, value_name = "SIZE")]
    pub(crate) block: Option<u64>,

    /// Bytes of the temporary files together [default: 1GiB], or the part of PATH that is used
    /// [default: all].
    #[arg(long, value_parser = units::parse_size)]
    pub(crate) size: Option<u64>,

    /// So many temporary files.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) files: usize,

    /// Operations per run [default: 20,000 direct, 100,000 cached, the whole file buffered-seq,
    /// 1,000 wal].
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    pub(crate) ops: Option<usize>,

    /// Measure each run for this long instead of by operations.
    #[arg(long, alias = "runtime", value_name = "S")]
    pub(crate) seconds: Option<f64>,

    /// Rounds; the figures are medians over them.
    #[arg(long, alias = "runs", default_value_t = 3, value_name = "N")]
    pub(crate) repeat: usize,

    /// Shorter rounds before, that do not count.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) warmup: usize,

    /// Chooses the offsets.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Registered files and buffers for `uring`, `batch` and `fio`.
    #[arg(long)]
    pub(crate) fixed: bool,

    /// Poll the device for completions in `uring` and `batch` (IORING_SETUP_IOPOLL); `batch` goes
    /// through a BlockIo then. Where the device has no queues for it, says how to get them. For
    /// `--profile direct`.
    #[arg(long, conflicts_with = "fixed")]
    pub(crate) iopoll: bool,

    /// Tie each thread or worker to a core of its own, while there are enough. Not by default:
    /// a thread on another core than the device's interrupts was measured at two thirds of the
    /// rate.
    #[arg(long)]
    pub(crate) pin: bool,

    /// Allow writing to a PATH that exists: its content is lost.
    #[arg(long)]
    pub(crate) destroy: bool,

    #[command(flatten)]
    pub(crate) outputs: Outputs,

    /// No progress bar.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// What is measured when `--threads` is not given.
const ONE_THREAD: [usize; 1] = [1];
const MAX_IN_FLIGHT: usize = 4096;

impl DiskArgs {
    pub(crate) fn strategies(&self) -> Vec<Strategy> {
        let chosen = if self.strategies.is_empty() { &ALL[..] } else { &self.strategies[..] };
        // In the order of the table, whatever the order that they were named in.
        ALL.into_iter().filter(|strategy| chosen.contains(strategy)).collect()
    }

    /// Whether the user asked for it by name.
    pub(crate) fn names(&self, strategy: Strategy) -> bool {
        self.strategies.contains(&strategy)
    }

    pub(crate) fn profiles(&self) -> Vec<Profile> {
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

    pub(crate) fn thread_counts(&self) -> Vec<usize> {
        if self.threads.is_empty() { ONE_THREAD.to_vec() } else { self.threads.clone() }
    }

    pub(crate) fn block_of(&self, profile: Profile) -> usize {
        let usual = if profile == Profile::BufferedSeq { 128 << 10 } else { 4 << 10 };
        self.block.unwrap_or(usual) as usize
    }

    /// What clap cannot check alone.
    pub(crate) fn validate(&self) -> Result<(), Failure> {
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
pub(crate) struct BatchArgs {
    /// `low`: the bare ring; `high`: BlockIo, from several submitters.
    #[arg(value_enum)]
    pub(crate) level: Level,

    /// The file to read.
    pub(crate) file: PathBuf,

    /// Through the page cache instead of with O_DIRECT.
    #[arg(long)]
    pub(crate) cached: bool,

    /// Rings, each with a thread of its own.
    #[arg(long, alias = "numjobs", default_value_t = 1, value_name = "N")]
    pub(crate) workers: usize,

    /// Who submits in `high`: four of them for each worker.
    #[arg(long, value_enum, default_value = "threads", value_name = "WHO")]
    pub(crate) submitters: Submitters,

    /// Rounds; fio and we take turns, and the figures are those of the median round.
    #[arg(long, alias = "runs", default_value_t = 1, value_name = "N")]
    pub(crate) repeat: usize,

    /// Rounds before, that do not count.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) warmup: usize,

    /// Chooses the offsets.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Tie each worker to a core of its own.
    #[arg(long)]
    pub(crate) pin: bool,

    /// Do not run fio beside it.
    #[arg(long)]
    pub(crate) no_fio: bool,

    #[command(flatten)]
    pub(crate) outputs: Outputs,
}

const SIM_EXAMPLES: &str = "\
Examples:
  cringle sim                                 10,000 seeds
  cringle sim --seeds 100000 --start 500000   others, and more
  cringle sim --seeds 1 --start 4711          one that failed, again
  cringle sim --json - | jq .seeds_per_second

Each seed draws a program (fibers that spawn, read, write, sync, talk, panic, …), which faults may
happen to it and when, and what ends when. The same seed is always the same run. What is checked is
on the page docs/simulation.md, which also shows how to test a program of one's own so.

Exit status: 0 all passed, 1 one failed (the seed is told), 2 wrong usage, 130 interrupted.";

#[derive(Args)]
#[command(after_help = SIM_EXAMPLES, args_override_self = true)]
pub(crate) struct SimArgs {
    /// How many seeds to try.
    #[arg(long, alias = "repeat", default_value_t = 10_000, value_name = "N")]
    pub(crate) seeds: u64,

    /// The first of them.
    #[arg(long, alias = "seed", default_value_t = 0, value_name = "S")]
    pub(crate) start: u64,

    /// OS threads, each with a simulation of its own [default: one for each core].
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,

    /// A seed that counts as failed, to see what that looks like.
    #[arg(long, value_name = "S", hide = true)]
    pub(crate) canary: Option<u64>,

    /// Write what came of it as JSON; `-` is standard output, and nothing else on it.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// No progress bar.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl SimArgs {
    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(cores)
    }

    /// What clap cannot check alone.
    pub(crate) fn validate(&self) -> Result<(), Failure> {
        match self.seeds == 0 || self.threads == Some(0) {
            true => Err(Failure::usage("--seeds and --threads count from 1")),
            false => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    Low,
    High,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Submitters {
    /// OS threads.
    Threads,
    /// Fibers of a runtime with as many workers.
    Fibers,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn disk(arguments: &[&str]) -> DiskArgs {
        let all = ["cringle", "bench", "disk"].iter().chain(arguments);
        match Cli::try_parse_from(all).unwrap_or_else(|error| panic!("{error}")).command {
            Command::Bench(Bench::Disk(args)) => *args,
            _ => unreachable!("it is bench disk"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
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
            assert_eq!(failure.status, crate::failure::USAGE, "{arguments:?}");
        }
        assert!(disk(&["--profile", "cached,cached,wal"]).validate().is_ok());
        assert_eq!(disk(&["--profile", "cached,cached,wal"]).profiles().len(), 2);
    }
}
