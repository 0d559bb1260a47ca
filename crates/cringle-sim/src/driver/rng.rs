//! The generator of all choices: SplitMix64 (Steele, Lea and Flood 2014).

/// A stream of random choices, the same for the same seed. If a test draws from it everything that
/// it varies, its seed replays the test.
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
    /// Returns the stream of a seed.
    ///
    /// ```
    /// use cringle::sim::Rng;
    ///
    /// assert_eq!(Rng::new(7).next(), Rng::new(7).next());
    /// ```
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Returns one of several independent streams of a seed: draws from one do not change the
    /// others.
    ///
    /// ```
    /// use cringle::sim::Rng;
    ///
    /// let (mut sizes, mut names) = (Rng::stream(7, "sizes"), Rng::stream(7, "names"));
    /// assert_ne!(sizes.next(), names.next());
    /// ```
    pub fn stream(seed: u64, name: &str) -> Rng {
        let named = name.bytes().fold(seed, |hash, byte| mix(hash ^ u64::from(byte)));
        Rng(named)
    }

    /// Draws a number of 64 bits, all equally likely.
    ///
    /// ```
    /// let mut rng = cringle::sim::Rng::new(7);
    /// let key = rng.next().to_le_bytes();
    /// assert_ne!(rng.next().to_le_bytes(), key);
    /// ```
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Draws a number from 0 to `limit` − 1; 0 if `limit` is 0.
    ///
    /// ```
    /// let mut rng = cringle::sim::Rng::new(7);
    /// let fruit = ["apple", "pear", "quince"];
    /// println!("{}", fruit[rng.below(3) as usize]);
    /// ```
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// Draws a number from `least` to `most`, both included.
    ///
    /// ```
    /// let die = cringle::sim::Rng::new(7).between(1, 6);
    /// assert!((1..=6).contains(&die));
    /// ```
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least).saturating_add(1))
    }

    /// Draws `true` with the probability 1 / `times`.
    ///
    /// ```
    /// let mut rng = cringle::sim::Rng::new(7);
    /// let deletes = (0..1000).filter(|_| rng.one_in(10)).count();
    /// assert!((50..200).contains(&deletes));
    /// ```
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Draws a number from `least` to `most`. Each power of two is equally likely, so most numbers
    /// are small.
    ///
    /// ```
    /// let mut rng = cringle::sim::Rng::new(7);
    /// let small = (0..1000).filter(|_| rng.magnitude(1, 1 << 20) < 1024).count();
    /// assert!((400..600).contains(&small)); // 10 of 20 powers of two.
    /// ```
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
