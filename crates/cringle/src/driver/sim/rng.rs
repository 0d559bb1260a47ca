//! The source of all choices: SplitMix64 (Steele, Lea and Flood 2014).

/// A stream of choices. Two with the same seed make the same ones: draw from one what a test varies, so that its
/// seed replays it.
///
/// ```
/// use cringle::sim::Rng;
///
/// let mut sizes = Rng::stream(7, "sizes");
/// let bytes = sizes.magnitude(1, 1 << 20);
/// assert_eq!(Rng::stream(7, "sizes").magnitude(1, 1 << 20), bytes);
/// ```
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// One of several independent streams of a seed: what one draws changes nothing in the others.
    pub fn stream(seed: u64, name: &str) -> Rng {
        let named = name.bytes().fold(seed, |hash, byte| mix(hash ^ u64::from(byte)));
        Rng(named)
    }

    /// The next number, each of 64 bits as likely as any other.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number from 0 to `limit` − 1; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// A number from `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least).saturating_add(1))
    }

    /// True with the probability 1 / `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A number from `least` to `most`, each power of two as likely as the next: most are small, some large.
    pub fn magnitude(&mut self, least: u64, most: u64) -> u64 {
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
