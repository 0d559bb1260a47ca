//! Results: one [`Run`] for each strategy at each queue depth, with all its samples.

use super::job::Profile;
use super::strategies::Strategy;
use crate::experiment::{Line, Named};
use crate::meter::Usage;

/// One row of the table: a strategy with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    pub strategy: Strategy,
    pub profile: Profile,
    /// Operations in flight per thread.
    pub queue_depth: usize,
    pub threads: usize,
    pub block: usize,
    /// Whether files and buffers are registered.
    pub(super) fixed: bool,
}

impl Setting {
    pub(super) fn label(&self) -> String {
        let fixed = if self.fixed { " --fixed" } else { "" };
        format!("{}{fixed}", self.strategy.name())
    }

    pub(super) fn in_flight(&self) -> usize {
        self.queue_depth * self.threads
    }
}

/// The name in a message; a table has a column for each number.
impl Named for Setting {
    fn name(&self) -> String {
        let threads = match self.threads {
            1 => String::new(),
            n => format!(", {n} threads"),
        };
        format!("{} (queue depth {}{threads})", self.label(), self.queue_depth)
    }
}

/// One measurement of a setting.
#[derive(Clone, Debug)]
pub struct DiskSample {
    pub(super) ops: u64,
    pub(super) usage: Usage,
    /// `None` if another program read the blocks.
    pub(super) checksum: Option<u64>,
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
}

impl DiskSample {
    pub(super) fn iops(&self) -> f64 {
        self.ops as f64 / self.usage.seconds
    }

    fn per_op(&self, value: f64) -> f64 {
        value / self.ops.max(1) as f64
    }

    pub(super) fn cpu_us_per_op(&self) -> f64 {
        self.per_op(self.usage.cpu_seconds() * 1e6)
    }

    pub(super) fn context_switches_per_op(&self) -> f64 {
        self.per_op(self.usage.context_switches as f64)
    }
}

/// A setting with its samples; the figures are medians over them.
pub type Run = Line<Setting, DiskSample>;

impl Run {
    pub fn iops(&self) -> f64 {
        self.figure(DiskSample::iops)
    }

    /// Returns the lowest and the highest rate of the rounds.
    pub(super) fn rates(&self) -> (f64, f64) {
        self.range(DiskSample::iops)
    }

    /// Returns the difference of the highest and the lowest rate as a part of the median; `None`
    /// for a single round.
    pub(super) fn spread(&self) -> Option<f64> {
        let (low, high) = self.rates();
        (self.samples.len() > 1).then(|| (high - low) / self.iops())
    }

    pub(super) fn ops(&self) -> f64 {
        self.figure(|sample| sample.ops as f64)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.figure(|sample| sample.usage.seconds)
    }

    pub(super) fn bytes_per_second(&self) -> f64 {
        self.iops() * self.subject.block as f64
    }

    pub(super) fn cpu_us_per_op(&self) -> f64 {
        self.figure(DiskSample::cpu_us_per_op)
    }

    pub(super) fn context_switches_per_op(&self) -> f64 {
        self.figure(DiskSample::context_switches_per_op)
    }

    /// Returns the median of all timed operations, or of the values that another program reported.
    pub(super) fn p50_us(&self) -> Option<f64> {
        self.latencies.quantile_us(0.50).or_else(|| self.median(|sample| sample.p50_us))
    }

    pub(super) fn p99_us(&self) -> Option<f64> {
        self.latencies.quantile_us(0.99).or_else(|| self.median(|sample| sample.p99_us))
    }

    /// Returns the checksum, if it is the same in all samples.
    pub(super) fn checksum(&self) -> Option<u64> {
        let first = self.samples.first()?.checksum?;
        self.samples.iter().all(|sample| sample.checksum == Some(first)).then_some(first)
    }
}

/// Returns the run of `strategy` to compare `setting` with: of the same profile, and for a strategy
/// with a queue, of the same depth and number of threads.
pub fn beside<'r>(runs: &'r [Run], setting: &Setting, strategy: Strategy) -> Option<&'r Run> {
    runs.iter().find(|run| {
        let other = &run.subject;
        let same_shape =
            (other.queue_depth, other.threads) == (setting.queue_depth, setting.threads);
        other.strategy == strategy
            && other.profile == setting.profile
            && (!strategy.has_queue() || same_shape)
    })
}
