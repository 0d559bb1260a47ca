//! The command line of `bench db`.

use super::rungs::Rung;
use super::tree::{PAGE_BYTES, Tree};
use crate::experiment::{Experiment, Report};
use crate::rounds::{Rounds, up_to};
use clap::{Args, ValueEnum};
use cringle_report::Outputs;
use cringle_report::failure::Failure;
use cringle_report::units::{self, counted, size};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cringle bench db
      Climb the ladder on the disk of this directory
  cringle bench db --tree 4g --pool 256m /mnt/nvme
      Use another disk, and a tree sixteen times larger than the pool
  cringle bench db --rungs +fibers,+batch --fibers 32 --repeat 7
      Compare two rungs, with fewer transactions at once
  cringle bench db --durable
      Measure durable transactions
  cringle bench db --json - | jq '.medians[] | {rung, transactions_per_second}'
      Print the rate of each rung

A storage engine on one core: a B-tree in a file, larger than the buffer pool. Each transaction \
finds a random row from the root downwards and adds to its value. The leaf is rarely in the pool, \
so a transaction reads a page, and for that another page, which earlier transactions have changed, \
must be written back. Reads and writes are direct.

Each rung of the ladder changes one thing in the rung below it:
  posix        pread and pwrite, one after the other
  ring         the same by a ring: one submission, one wait
  +evict       changed pages are written back many at a time
  +fibers      many transactions at once, on fibers; a call submits one operation
  +batch       one call submits what all fibers ask for in a turn
  +registered  the file and the pool's memory are registered with the ring
Beside the ladder, with as many transactions at once as there are fibers:
  threads      a thread for each, on all cores; one lock, not held during I/O
  tokio        a task for each, on one thread; preads on the blocking pool
  twin+…       the rung on hand-written coroutines (corosensei) and a bare ring
  fio          reads and writes at the same mix, without an engine

With --durable a transaction ends when its change is in a write-ahead log, on the disk. \
Transactions that wait at the same time share a write and a flush. The pool is discarded at the \
end, as by a crash, and the log is replayed before the tree is checked.

All rungs perform the same transactions. After each run the whole tree is read, and its checksum \
must be the one that a copy in memory has.

Exit status: 0 success, 1 failure (a wrong checksum, an I/O error), 2 wrong usage, 130 interrupted.";

#[derive(Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct DbArgs {
    /// A directory, for a temporary file without a name.
    #[arg(default_value = ".", value_name = "DIR")]
    pub(crate) path: PathBuf,

    /// Bytes of the tree.
    #[arg(long, value_parser = units::parse_size, default_value = "256MiB", value_name = "BYTES")]
    pub(super) tree: u64,

    /// Bytes of the buffer pool [default: an eighth of the tree].
    #[arg(long, value_parser = units::parse_size, value_name = "BYTES")]
    pool: Option<u64>,

    /// Transactions of a run.
    #[arg(long, default_value_t = 40_000, value_parser = up_to(1 << 32), value_name = "N")]
    pub(super) transactions: usize,

    /// Transactions at once, from +fibers on, and for threads and tokio.
    #[arg(long, default_value_t = 128, value_parser = up_to(1 << 14), value_name = "N")]
    pub(super) fibers: usize,

    /// Pages that are written back together, from +evict on.
    #[arg(long, default_value_t = 32, value_parser = up_to(1 << 10), value_name = "N")]
    pub(super) evict_batch: usize,

    /// Rungs to run, as a comma-separated list [default: all but the twins].
    #[arg(long, value_delimiter = ',', value_enum)]
    rungs: Vec<Rung>,

    /// Run the hand-written twins of +fibers, +batch and +registered, too.
    #[arg(long)]
    twins: bool,

    /// End a transaction when a write-ahead log has its change on the disk (block::Log).
    #[arg(long, conflicts_with = "twins")]
    pub(super) durable: bool,

    /// Do not compare with fio.
    #[arg(long)]
    no_fio: bool,

    #[command(flatten)]
    pub(super) rounds: Rounds<3, 0>,

    /// Seed of the tree's keys and of the transactions.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) seed: u64,

    #[command(flatten)]
    pub(crate) outputs: Outputs,
}

/// The fibers that write back changed pages and do nothing else.
pub(super) const EVICTORS: usize = 4;

/// The fewest pages of a tree. It has a root and leaves, and space for a pool.
const LEAST_PAGES: u64 = 64;
/// Page numbers have 32 bits, and one of them means "none".
const MOST_PAGES: u64 = u32::MAX as u64;

impl DbArgs {
    /// The chosen rungs, in the order of the ladder.
    pub(super) fn rungs(&self) -> Vec<Rung> {
        let by_default = self.rungs.is_empty();
        let is_chosen = |rung: &Rung| match (rung, rung.twin_of()) {
            (Rung::Fio, _) if self.no_fio => false,
            (_, Some(_)) if self.twins => true,
            (_, Some(_)) if by_default => false,
            _ => by_default || self.rungs.contains(rung),
        };
        Rung::value_variants().iter().copied().filter(is_chosen).collect()
    }

    /// The number of pages in the buffer pool.
    pub(super) fn frames(&self) -> usize {
        (self.pool_bytes() / PAGE_BYTES as u64) as usize
    }

    pub(super) fn pool_bytes(&self) -> u64 {
        self.pool.unwrap_or(self.tree / 8)
    }

    /// The fewest pages of a pool in which every transaction can load a page while the evictors
    /// write.
    fn least_frames(&self) -> usize {
        2 * (self.fibers + EVICTORS * self.evict_batch)
    }

    pub(super) fn shape(&self) -> Tree {
        Tree::within(self.tree / PAGE_BYTES as u64, self.seed)
    }
}

impl Experiment for DbArgs {
    fn measure(&self) -> Result<Report, Failure> {
        super::measure(self)
    }

    fn validate(&self) -> Result<(), Failure> {
        let refuse = |text: String| Err(Failure::usage(text));
        if !(LEAST_PAGES..=MOST_PAGES).contains(&(self.tree / PAGE_BYTES as u64)) {
            return refuse(format!(
                "--tree must be at least {} and less than {}",
                size(LEAST_PAGES * PAGE_BYTES as u64),
                size((MOST_PAGES + 1) * PAGE_BYTES as u64)
            ));
        }
        let pool = self.pool_bytes();
        if self.frames() as u64 >= self.shape().pages() {
            return refuse(format!(
                "--pool of {} is not smaller than the tree of {}: no transaction would read a \
                 page; choose a smaller --pool or a larger --tree",
                size(pool),
                size(self.tree)
            ));
        }
        if self.frames() < self.least_frames() {
            return refuse(format!(
                "the pool of {} is too small for {} and batches of {}: they need {}; choose a \
                 larger --pool or --tree, or fewer --fibers, or a smaller --evict-batch",
                size(pool),
                counted(self.fibers, "fiber"),
                counted(self.evict_batch, "page"),
                size((self.least_frames() * PAGE_BYTES) as u64)
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bench;
    use crate::experiment::Named;

    fn parsed(line: &[&str]) -> Box<DbArgs> {
        match Bench::parse(&[&["db"], line].concat()) {
            Ok(Bench::Db(args)) => args,
            _ => panic!("{line:?} is not a command line of bench db"),
        }
    }

    #[test]
    fn twins_run_when_named_or_requested() {
        let names = |line: &[&str]| {
            parsed(line).rungs().into_iter().map(|rung| rung.name()).collect::<Vec<_>>().join(" ")
        };
        assert!(!names(&[]).contains("twin"));
        assert_eq!(names(&["--rungs", "+batch,ring"]), "ring +batch");
        assert_eq!(names(&["--rungs", "+batch,fio", "--no-fio"]), "+batch");
        assert_eq!(names(&["--rungs", "twin+batch,+batch"]), "+batch twin+batch");
        let twins = "twin+fibers twin+batch twin+registered";
        assert_eq!(names(&["--rungs", "tokio", "--twins"]), format!("tokio {twins}"));
        assert!(names(&["--twins"]).contains(twins));
    }

    #[test]
    fn a_pool_must_be_smaller_than_the_tree() {
        let check = |line: &[&str]| parsed(line).validate().map_err(|failure| failure.message);
        let small = ["--fibers", "4", "--evict-batch", "2", "--tree", "1m"];
        assert_eq!(check(&[&small[..], &["--pool", "512k"]].concat()), Ok(()));
        for pool in ["1m", "2m"] {
            let refused = check(&[&small[..], &["--pool", pool]].concat()).unwrap_err();
            assert!(refused.contains("choose a smaller --pool"), "{refused}");
        }
        let refused = check(&[&small[..], &["--pool", "64k"]].concat()).unwrap_err();
        assert!(refused.contains("96 KiB") && refused.contains("larger --pool"), "{refused}");
        assert!(
            check(&["--tree", "100k"])
                .unwrap_err()
                .contains("at least 256 KiB and less than 16 TiB")
        );
    }
}
