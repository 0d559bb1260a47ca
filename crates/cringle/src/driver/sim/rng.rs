//! Where all choices come from: one number, stepped and mixed (SplitMix64, Steele, Lea and Flood
//! 2014).

/// A stream of choices. Two with the same seed give the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Another stream from the same seed, so that one does not depend on how much the other drew.
    pub(crate) fn stream(seed: u64, name: &str) -> Rng {
        let named = name.bytes().fold(seed, |hash, byte| mix(hash ^ u64::from(byte)));
        Rng(named)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// 0 to `limit` − 1; 0 if there is nothing below.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// One of these, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least).saturating_add(1))
    }

    /// True once in so many times.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these, each power of two as likely as the next: most draws are small, some are large.
    pub(crate) fn magnitude(&mut self, least: u64, most: u64) -> u64 {
        let least = least.max(1);
        let doublings = most.max(least).ilog2() - least.ilog2();
        let low = least << self.below(u64::from(doublings) + 1);
        self.between(low, (low * 2 - 1).min(most.max(low)))
    }
}

pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
