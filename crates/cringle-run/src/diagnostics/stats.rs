//! The counters of a runtime, as numbers and as text.

use cringle_core::shared::{Peer, Shared};
use cringle_core::worker::Worker;
use cringle_driver::pool::Pool;
use cringle_driver::{BUCKETS, Counter};
use std::fmt;

/// Returns the counters of the calling fiber's runtime; `None` outside of [`run`](crate::run::run).
///
/// The counters are always on, and cost next to nothing: each worker adds to its own. They are read
/// one after the other while the workers run, so the values of different workers may be a moment
/// apart.
///
/// ```
/// use cringle::{fiber, runtime};
///
/// cringle::run(|| {
///     fiber::spawn(|| ()).join().unwrap();
///     let stats = runtime::stats().expect("there is a runtime here");
///     assert!(stats.total().started >= 2 && stats.total().ended >= 1);
///     println!("{stats}");
/// });
/// ```
pub fn stats() -> Option<Stats> {
    Worker::here().map(|worker| stats_of(worker.shared()))
}

/// The counters of a runtime: see [`stats`]. Its `Display` is a table, at most 80 columns wide.
///
/// ```
/// let stats = cringle::run(cringle::runtime::stats).expect("there was a runtime");
/// for (number, worker) in stats.workers.iter().enumerate() {
///     println!("worker {number}: {} fibers started", worker.started);
/// }
/// println!("{} threads for `unblock`", stats.unblock_pool.threads);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The counters of each worker, by its number.
    pub workers: Vec<WorkerStats>,
    /// The threads that run closures which may block ([`unblock`](cringle_std::fiber::unblock)).
    pub unblock_pool: PoolStats,
    /// The threads that run the library's own calls for which a ring has no operation.
    pub call_pool: PoolStats,
    /// The threads that look which pages of a `block::MappedFile` are in memory, and unmap it.
    pub map_pool: PoolStats,
}

/// A histogram of calls by the number of entries that they submitted, in powers of two.
///
/// ```
/// let stats = cringle::run(cringle::runtime::stats).expect("there was a runtime");
/// let entries = stats.total().entries;
/// let batching = entries.sum() as f64 / entries.calls().max(1) as f64;
/// println!("{batching:.1} entries in each call");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryCounts {
    buckets: [u64; BUCKETS],
    sum: u64,
}

/// The state of a pool of threads.
///
/// ```
/// use cringle::{fiber, runtime};
///
/// cringle::run(|| {
///     fiber::unblock(|| ());
///     let pool = runtime::stats().expect("there is a runtime here").unblock_pool;
///     assert!(pool.threads >= 1 && pool.queued == 0);
/// });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Jobs that wait for a thread.
    pub queued: usize,
    /// Threads that exist.
    pub threads: usize,
    /// Threads that wait for a job.
    pub idle: usize,
}

/// The counters of a runtime.
pub fn stats_of(shared: &Shared) -> Stats {
    Stats {
        workers: shared.peers.iter().map(WorkerStats::of).collect(),
        unblock_pool: PoolStats::of(&shared.unblock_pool),
        call_pool: PoolStats::of(&shared.call_pool),
        map_pool: PoolStats::of(&shared.map_pool),
    }
}

impl Stats {
    /// Returns the sums over all workers. (The sum of [`most_stacks`](WorkerStats::most_stacks) is
    /// an upper bound: each worker may have had its most at another time.)
    ///
    /// ```
    /// let stats = cringle::run(cringle::runtime::stats).expect("there was a runtime");
    /// assert_eq!(stats.total().turns, stats.workers.iter().map(|worker| worker.turns).sum());
    /// ```
    pub fn total(&self) -> WorkerStats {
        let mut total = WorkerStats::default();
        for worker in &self.workers {
            total.add(worker);
        }
        total
    }
}

/// Lists the counters that are numbers: field and label.
macro_rules! numbers {
    ($($(#[$doc:meta])* $field:ident: $label:literal,)*) => {
        /// The counters of one worker since it began. Fields marked "Now" are the state at the
        /// moment; all others only grow.
        ///
        /// ```
        /// let stats = cringle::run(cringle::runtime::stats).expect("there was a runtime");
        /// let all = stats.total();
        /// println!("{} entries in {} calls", all.entries.sum(), all.enters);
        /// println!("{} of {} fibers wait", all.waiting, all.started - all.ended);
        /// ```
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct WorkerStats {
            /// The number of entries that each of the calls into the kernel submitted. Wake-ups and
            /// cancels are entries too; a write or a sync is two.
            pub entries: EntryCounts,
            $($(#[$doc])* pub $field: u64,)*
        }

        impl WorkerStats {
            fn add(&mut self, other: &WorkerStats) {
                $(self.$field += other.$field;)*
                self.entries.add(&other.entries);
            }

            /// Returns every number by its name, in the order of the table, for export to other
            /// tools. ([`entries`](Self::entries) is a histogram, and not among them.)
            ///
            /// ```
            /// let stats = cringle::run(cringle::runtime::stats).expect("there was a runtime");
            /// for (name, number) in stats.total().numbers() {
            ///     println!("cringle_{name} {number}"); // As Prometheus reads it.
            /// }
            /// ```
            pub fn numbers(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }
        }

        const LABELS: &[(&str, fn(&WorkerStats) -> u64)] = &[$(($label, |stats| stats.$field)),*];
    };
}

numbers! {
    /// Turns. In each turn every ready fiber runs once.
    turns: "turns",
    /// Fibers that started here, and got a stack.
    started: "fibers started",
    /// Fibers that ended here.
    ended: "fibers ended",
    /// Now: fibers that are ready, or run.
    ready: "  ready now",
    /// Now: fibers that wait.
    waiting: "  waiting now",
    /// Now: fibers spawned here that no worker has started.
    unstarted: "  not started yet",
    /// Calls of the driver into the kernel, to submit, to wait, or both.
    enters: "calls into the kernel",
    /// Now: operations in flight when the worker last looked.
    in_flight: "operations in flight",
    /// Calls that were tried without waiting, and succeeded.
    inline_hits: "inline hits",
    /// Calls that were tried without waiting, and would have waited.
    inline_misses: "inline misses",
    /// Reads of mapped files that were copied from memory.
    mapped_copies: "mapped reads copied",
    /// Waits of fibers for room among the operations in flight.
    room_waits: "waits for a free slot",
    /// Unstarted fibers taken from other workers.
    steals: "fibers stolen",
    /// Started fibers that came from other workers: see
    /// [`Builder::balance`](crate::run::Builder::balance).
    moves: "fibers moved here",
    /// Sleeps of the worker in the kernel.
    sleeps: "sleeps",
    /// Sleeping workers that this one has woken.
    wakes: "workers woken",
    /// Messages received from other threads.
    messages: "messages read",
    /// Calls into the kernel that found the completion queue overflowed. No completion is lost by
    /// that.
    overflows: "overflows",
    /// Now: stacks in use by fibers.
    stacks: "stacks in use",
    /// The most stacks in use at once.
    most_stacks: "  at most",
}

impl WorkerStats {
    fn of(peer: &Peer) -> WorkerStats {
        let counters = &peer.counters;
        // `started` is read last, so that a fiber that ends meanwhile counts as started too.
        let (waiting, ended, started) =
            (counters.waiting.get(), peer.ended.read(), counters.started.get());
        let stacks = started.saturating_sub(ended);
        let mut stats = WorkerStats {
            turns: counters.turns.get(),
            started,
            ended,
            ready: stacks.saturating_sub(waiting),
            waiting,
            unstarted: peer.stealer.len() as u64,
            inline_hits: counters.inline_hits.get(),
            inline_misses: counters.inline_misses.get(),
            mapped_copies: counters.mapped_copies.get(),
            room_waits: counters.room_waits.get(),
            steals: counters.steals.get(),
            moves: counters.moves.get(),
            sleeps: counters.sleeps.get(),
            wakes: counters.wakes.get(),
            messages: counters.messages.get(),
            stacks,
            most_stacks: counters.most_alive.get(),
            entries: EntryCounts::default(),
            enters: 0,
            in_flight: 0,
            overflows: 0,
        };
        if let Some(driver) = peer.driver_counts() {
            stats.enters = driver.enters.get();
            stats.in_flight = driver.in_flight.get();
            stats.overflows = driver.overflows.get();
            stats.entries = EntryCounts {
                buckets: driver.entries.each_ref().map(Counter::get),
                sum: driver.submitted.get(),
            };
        }
        stats
    }
}

impl EntryCounts {
    /// Returns for each bucket the largest number of entries in it and the number of calls: buckets
    /// of 0, 1, 2 to 3, 4 to 7 entries and so on.
    ///
    /// ```
    /// let stats = cringle::run(cringle::runtime::stats).expect("there was a runtime");
    /// for (most, calls) in stats.total().entries.buckets() {
    ///     println!("{calls} calls with up to {most} entries");
    /// }
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        (0u32..).map(|bits| (1u64 << bits) - 1).zip(self.buckets)
    }

    /// Returns the number of calls.
    ///
    /// ```
    /// let stats = cringle::run(cringle::runtime::stats).expect("there was a runtime");
    /// let entries = stats.total().entries;
    /// assert_eq!(entries.calls(), entries.buckets().map(|(_, calls)| calls).sum());
    /// ```
    pub fn calls(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the number of entries in all calls.
    ///
    /// ```
    /// let stats = cringle::run(cringle::runtime::stats).expect("there was a runtime");
    /// println!("{} entries", stats.total().entries.sum());
    /// ```
    pub fn sum(&self) -> u64 {
        self.sum
    }

    fn add(&mut self, other: &EntryCounts) {
        self.sum += other.sum;
        self.buckets.iter_mut().zip(other.buckets).for_each(|(mine, theirs)| *mine += theirs);
    }
}

impl PoolStats {
    fn of(pool: &Pool) -> PoolStats {
        let (queued, threads, idle) = pool.load();
        PoolStats { queued, threads, idle }
    }
}

/// The most columns of numbers in a block of the table.
const COLUMNS: usize = 6;

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let mut columns = vec![("all".to_owned(), &total)];
        if self.workers.len() > 1 {
            let workers = self.workers.iter().enumerate();
            columns.extend(workers.map(|(index, stats)| (format!("worker {index}"), stats)));
        }
        for block in columns.chunks(COLUMNS) {
            write_block(f, block)?;
        }
        write!(f, "entries a call:")?;
        let mut column = 15;
        for (range, calls) in total.entries.ranges() {
            let text = format!("  {range}: {}", Short(calls));
            if column + text.len() > 80 {
                write!(f, "\n              ")?;
                column = 14;
            }
            column += text.len();
            f.write_str(&text)?;
        }
        let pools = [
            ("blocking closures", &self.unblock_pool),
            ("calls", &self.call_pool),
            ("mapped files", &self.map_pool),
        ];
        for (name, pool) in pools {
            let PoolStats { queued, threads, idle } = pool;
            write!(
                f,
                "\npool for {name}: {queued} queued, {threads} threads, {idle} of them idle"
            )?;
        }
        Ok(())
    }
}

fn write_block(f: &mut fmt::Formatter<'_>, block: &[(String, &WorkerStats)]) -> fmt::Result {
    write!(f, "{:22}", "")?;
    for (name, _) in block {
        write!(f, "{name:>9}")?;
    }
    for (label, number) in LABELS {
        write!(f, "\n{label:22}")?;
        for (_, stats) in block {
            write!(f, "{:>9}", Short(number(stats)).to_string())?;
        }
    }
    writeln!(f)
}

impl EntryCounts {
    /// The buckets that are not empty, as text: `4-7`.
    fn ranges(&self) -> impl Iterator<Item = (String, u64)> {
        let buckets = self.buckets().filter(|&(_, calls)| calls > 0);
        buckets.map(|(most, calls)| match most {
            0 | 1 => (most.to_string(), calls),
            most => (format!("{}-{most}", most / 2 + 1), calls),
        })
    }
}

/// Prints a number in at most eight characters.
struct Short(u64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n @ ..=99_999_999 => write!(f, "{n}"),
            n @ ..=99_999_999_999 => write!(f, "{}k", n / 1000),
            n @ ..=99_999_999_999_999 => write!(f, "{}M", n / 1_000_000),
            n @ ..=99_999_999_999_999_999 => write!(f, "{}G", n / 1_000_000_000),
            n => write!(f, "{}T", n / 1_000_000_000_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_fit_80_columns() {
        let mut worker =
            WorkerStats { turns: u64::MAX / 64, started: 99_999_999, ..Default::default() };
        worker.entries.buckets = [12_345_678; BUCKETS];
        for count in [1, 2, 5, 6, 17] {
            let stats = Stats { workers: vec![worker.clone(); count], ..Stats::default() };
            let text = stats.to_string();
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            let blocks = text.lines().filter(|line| line.starts_with("turns ")).count();
            assert_eq!(blocks, if count == 1 { 1 } else { (count + 1).div_ceil(COLUMNS) });
        }
    }

    #[test]
    fn buckets_are_labelled_by_their_range() {
        let mut entries = EntryCounts::default();
        entries.buckets[..4].copy_from_slice(&[1, 2, 0, 4]);
        let ranges: Vec<_> = entries.ranges().collect();
        assert_eq!(ranges, [("0".into(), 1), ("1".into(), 2), ("4-7".into(), 4)]);
        let bounds: Vec<u64> = entries.buckets().map(|(most, _)| most).collect();
        assert_eq!((bounds[..4].to_vec(), bounds[16]), (vec![0, 1, 3, 7], 65_535));
    }
}
