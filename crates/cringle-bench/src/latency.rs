//! Latencies of a sample of the operations.
//!
//! Two looks at the clock cost about as much as a tenth of a cached read, so only some
//! operations are timed, chosen by a hash of their number: a regular stride could fall in
//! step with the batches.

use hdrhistogram::Histogram;
use serde_json::{Map, Value};

/// Which operations are timed: one of 2^`shift`.
#[derive(Clone, Copy)]
pub struct Sampling {
    shift: u32,
}

impl Sampling {
    pub const EVERY: Sampling = Sampling { shift: 0 };
    pub const ONE_IN_8: Sampling = Sampling { shift: 3 };
    pub const ONE_IN_64: Sampling = Sampling { shift: 6 };

    #[inline]
    pub fn takes(self, index: usize) -> bool {
        // The top bits of a multiplicative hash; a shift by 32 of the widened value is 0.
        let hash = u64::from((index as u32).wrapping_mul(0x9E37_79B1));
        hash >> (32 - self.shift) == 0
    }
}

/// Closer together where fewer operations are.
const SHARES: [f64; 25] = [
    0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995,
    0.997, 0.998, 0.999, 0.9995, 0.9998, 0.9999, 0.99995, 0.99999,
];

/// Merged latencies, in nanoseconds.
#[derive(Clone)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    pub fn new() -> Latencies {
        // One nanosecond to an hour, three digits: the bounds are constants, so it cannot fail.
        Latencies(Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("valid bounds"))
    }

    pub fn record(&mut self, nanoseconds: impl IntoIterator<Item = u64>) {
        for ns in nanoseconds {
            self.0.saturating_record(ns.max(1));
        }
    }

    pub fn merge(&mut self, other: &Latencies) {
        // Both have the same bounds.
        let _ = self.0.add(&other.0);
    }

    /// Microseconds; `None` when nothing was timed.
    pub fn quantile_us(&self, quantile: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile) as f64 / 1e3)
    }

    /// The distribution: shares of the operations, and within how many microseconds they were done. None
    /// that fewer than one operation decides.
    pub fn quantiles_us(&self) -> Vec<(f64, f64)> {
        let decided = |share: &&f64| (1.0 - **share) * self.0.len() as f64 >= 1.0 - 1e-6;
        let at = |share: &f64| Some((*share, self.quantile_us(*share)?));
        SHARES.iter().filter(decided).filter_map(at).collect()
    }

    /// The distribution as JSON: `{"0.5": 380.1, …}`; an empty object if no operation was timed.
    pub fn to_json(&self) -> Value {
        let quantiles = self.quantiles_us().into_iter();
        quantiles.map(|(share, us)| (share.to_string(), us.into())).collect::<Map<_, _>>().into()
    }

    pub fn max_us(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.max() as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_about_as_large_as_it_says() {
        let taken = |s: Sampling| (0..64_000).filter(|&i| s.takes(i)).count();
        assert_eq!(taken(Sampling::EVERY), 64_000);
        assert!((7_500..8_500).contains(&taken(Sampling::ONE_IN_8)));
        assert!((900..1_100).contains(&taken(Sampling::ONE_IN_64)));
    }

    #[test]
    fn every_lane_of_a_common_queue_depth_is_sampled() {
        for lanes in [1, 4, 16, 32, 64, 128] {
            for lane in 0..lanes {
                let hit = (lane..100_000).step_by(lanes).any(|i| Sampling::ONE_IN_64.takes(i));
                assert!(hit, "lane {lane} of {lanes} is never timed");
            }
        }
    }

    #[test]
    fn a_distribution_ends_where_operations_do() {
        assert!(Latencies::new().quantiles_us().is_empty());
        let mut all = Latencies::new();
        all.record((1..=1000).map(|i| i * 1000));
        let told = all.quantiles_us();
        assert_eq!((told[0].0, told.last().unwrap().0), (0.0, 0.999));
        assert!(told.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{told:?}");
        assert_eq!(told.iter().find(|one| one.0 == 0.9).unwrap().1, all.quantile_us(0.9).unwrap());
    }

    #[test]
    fn quantiles_are_in_microseconds() {
        let mut all = Latencies::new();
        assert_eq!(all.quantile_us(0.5), None);
        all.record((1..=1000).map(|i| i * 1000));
        let close = |a: f64, b: f64| (a - b).abs() / b < 0.002;
        assert!(close(all.quantile_us(0.5).unwrap(), 500.0));
        assert!(close(all.quantile_us(0.99).unwrap(), 990.0));
        assert!(close(all.max_us().unwrap(), 1000.0));
    }
}
