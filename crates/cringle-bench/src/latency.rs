//! Latencies of a sample of the operations.
//!
//! Reading the clock twice costs a noticeable part of a cached read, so only some operations are
//! timed. A hash of the operation's number selects them: a regular stride could coincide with the
//! batches.

use hdrhistogram::Histogram;
use serde_json::{Map, Value};

/// Selects the operations that are timed: one in 2^`shift`.
#[derive(Clone, Copy)]
pub(crate) struct Sampling {
    shift: u32,
}

impl Sampling {
    pub(crate) const EVERY: Sampling = Sampling { shift: 0 };
    pub(crate) const ONE_IN_8: Sampling = Sampling { shift: 3 };
    pub(crate) const ONE_IN_64: Sampling = Sampling { shift: 6 };

    #[inline]
    pub(crate) fn takes(self, index: usize) -> bool {
        // The top `shift` bits of a multiplicative hash. The value is widened because a shift by 32
        // bits, for a `shift` of 0, needs 64.
        let hash = u64::from((index as u32).wrapping_mul(0x9E37_79B1));
        hash >> (32 - self.shift) == 0
    }
}

/// The quantiles of a distribution, denser towards the slow operations.
const SHARES: [f64; 25] = [
    0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995,
    0.997, 0.998, 0.999, 0.9995, 0.9998, 0.9999, 0.99995, 0.99999,
];

/// A histogram of latencies with three significant digits.
#[derive(Clone)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Latencies {
        // From a nanosecond to an hour. The bounds are constants, so this cannot fail.
        Latencies(Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("valid bounds"))
    }

    pub(crate) fn record(&mut self, nanoseconds: impl IntoIterator<Item = u64>) {
        for ns in nanoseconds {
            self.0.saturating_record(ns.max(1));
        }
    }

    pub(crate) fn merge(&mut self, other: &Latencies) {
        // Cannot fail: both have the same bounds.
        let _ = self.0.add(&other.0);
    }

    /// Returns a quantile in microseconds, or `None` if no operation was timed.
    pub(crate) fn quantile_us(&self, quantile: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile) as f64 / 1e3)
    }

    /// Returns the distribution: shares of the operations, each with the microseconds within which
    /// that share was done. Leaves out the quantiles that less than one slower operation supports.
    pub(crate) fn quantiles_us(&self) -> Vec<(f64, f64)> {
        let supported = |share: &&f64| (1.0 - **share) * self.0.len() as f64 >= 1.0 - 1e-6;
        let at = |share: &f64| Some((*share, self.quantile_us(*share)?));
        SHARES.iter().filter(supported).filter_map(at).collect()
    }

    /// Returns the distribution as JSON: `{"0.5": 380.1, …}`, or an empty object if no operation
    /// was timed.
    pub(crate) fn to_json(&self) -> Value {
        let quantiles = self.quantiles_us().into_iter();
        quantiles.map(|(share, us)| (share.to_string(), us.into())).collect::<Map<_, _>>().into()
    }

    pub(crate) fn max_us(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.max() as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_about_the_stated_size() {
        let taken = |s: Sampling| (0..64_000).filter(|&i| s.takes(i)).count();
        assert_eq!(taken(Sampling::EVERY), 64_000);
        assert!((7_500..8_500).contains(&taken(Sampling::ONE_IN_8)));
        assert!((900..1_100).contains(&taken(Sampling::ONE_IN_64)));
    }

    #[test]
    fn every_lane_of_usual_depths_is_sampled() {
        for lanes in [1, 4, 16, 32, 64, 128] {
            for lane in 0..lanes {
                let hit = (lane..100_000).step_by(lanes).any(|i| Sampling::ONE_IN_64.takes(i));
                assert!(hit, "lane {lane} of {lanes} is never timed");
            }
        }
    }

    #[test]
    fn a_distribution_ends_at_the_slowest_operation() {
        assert!(Latencies::new().quantiles_us().is_empty());
        let mut all = Latencies::new();
        all.record((1..=1000).map(|i| i * 1000));
        let curve = all.quantiles_us();
        assert_eq!((curve[0].0, curve.last().unwrap().0), (0.0, 0.999));
        assert!(curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{curve:?}");
        let at_90 = curve.iter().find(|point| point.0 == 0.9).unwrap().1;
        assert_eq!(at_90, all.quantile_us(0.9).unwrap());
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
