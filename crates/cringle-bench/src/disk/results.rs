//! What came out: one [`Run`] for each strategy at each queue depth, with all its samples.

use super::job::Profile;
use super::strategies::Strategy;
use crate::latency::Latencies;
use crate::meter::Usage;
use cringle_report::stats::median;

/// What is measured: one row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    pub strategy: Strategy,
    pub profile: Profile,
    /// Operations in flight per thread.
    pub queue_depth: usize,
    pub threads: usize,
    pub block: usize,
    /// With registered files and buffers.
    pub fixed: bool,
}

impl Cell {
    pub fn label(&self) -> String {
        let fixed = if self.fixed { " --fixed" } else { "" };
        format!("{}{fixed}", self.strategy.name())
    }

    /// For messages.
    pub fn described(&self) -> String {
        let threads = match self.threads {
            1 => String::new(),
            n => format!(", {n} threads"),
        };
        format!("{} (queue depth {}{threads})", self.label(), self.queue_depth)
    }

    pub fn in_flight(&self) -> usize {
        self.queue_depth * self.threads
    }
}

/// One measurement of a cell.
#[derive(Clone, Debug)]
pub struct Sample {
    pub ops: u64,
    pub usage: Usage,
    /// `None` where another program did the reading.
    pub checksum: Option<u64>,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
}

impl Sample {
    pub fn iops(&self) -> f64 {
        self.ops as f64 / self.usage.seconds
    }

    fn per_op(&self, value: f64) -> f64 {
        value / self.ops.max(1) as f64
    }

    pub fn cpu_us_per_op(&self) -> f64 {
        self.per_op(self.usage.cpu_seconds() * 1e6)
    }

    pub fn context_switches_per_op(&self) -> f64 {
        self.per_op(self.usage.context_switches as f64)
    }
}

/// A cell with its samples; the figures are medians over them.
#[derive(Clone)]
pub struct Run {
    pub cell: Cell,
    pub samples: Vec<Sample>,
    /// Of all samples together, when they were timed here.
    pub latencies: Latencies,
}

impl Run {
    pub fn new(cell: Cell) -> Run {
        Run { cell, samples: Vec::new(), latencies: Latencies::new() }
    }

    fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(of)).unwrap_or(0.0)
    }

    pub fn iops(&self) -> f64 {
        self.median(Sample::iops)
    }

    pub fn ops(&self) -> f64 {
        self.median(|sample| sample.ops as f64)
    }

    pub fn seconds(&self) -> f64 {
        self.median(|sample| sample.usage.seconds)
    }

    pub fn bytes_per_second(&self) -> f64 {
        self.iops() * self.cell.block as f64
    }

    pub fn cpu_us_per_op(&self) -> f64 {
        self.median(Sample::cpu_us_per_op)
    }

    pub fn context_switches_per_op(&self) -> f64 {
        self.median(Sample::context_switches_per_op)
    }

    /// From all timed operations of all samples, or, where another program timed them, the
    /// median of what it reported.
    pub fn p50_us(&self) -> Option<f64> {
        self.latencies.quantile_us(0.50).or_else(|| median(self.reported(|s| s.p50_us)))
    }

    pub fn p99_us(&self) -> Option<f64> {
        self.latencies.quantile_us(0.99).or_else(|| median(self.reported(|s| s.p99_us)))
    }

    fn reported(&self, of: fn(&Sample) -> Option<f64>) -> Vec<f64> {
        self.samples.iter().filter_map(of).collect()
    }

    /// The one checksum of all samples.
    pub fn checksum(&self) -> Option<u64> {
        let first = self.samples.first()?.checksum?;
        self.samples.iter().all(|sample| sample.checksum == Some(first)).then_some(first)
    }
}

/// The run beside which another is looked at: same profile, and where it has a queue, the
/// same depth and threads.
pub fn beside<'r>(runs: &'r [Run], cell: &Cell, strategy: Strategy) -> Option<&'r Run> {
    runs.iter().find(|run| {
        let other = &run.cell;
        let same_shape = (other.queue_depth, other.threads) == (cell.queue_depth, cell.threads);
        other.strategy == strategy
            && other.profile == cell.profile
            && (!strategy.has_queue() || same_shape)
    })
}
