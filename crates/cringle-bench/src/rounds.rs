//! `--repeat` and `--warmup`, the flags of every experiment that runs in rounds.

use clap::Args;
use clap::builder::RangedU64ValueParser;

/// The most rounds.
pub(crate) const MOST_ROUNDS: u64 = 1_000_000;

/// Parses a number that is at most `most`.
pub(crate) fn at_most(most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(..=most)
}

// No doc comment on the type: clap would use it as the description of the whole command.
#[derive(Args)]
pub struct Rounds<const REPEAT: usize, const WARMUP: usize> {
    /// Rounds to measure; the figures are their medians.
    #[arg(
        long,
        alias = "runs",
        default_value_t = REPEAT,
        value_parser = at_most(MOST_ROUNDS),
        value_name = "N"
    )]
    pub repeat: usize,

    /// Rounds to run first and discard.
    #[arg(
        long,
        default_value_t = WARMUP,
        value_parser = at_most(MOST_ROUNDS),
        value_name = "N"
    )]
    pub warmup: usize,
}

impl<const REPEAT: usize, const WARMUP: usize> Rounds<REPEAT, WARMUP> {
    /// The number of all rounds.
    pub(crate) fn total(&self) -> usize {
        self.warmup + self.repeat
    }

    /// Whether the round with this number is measured.
    pub(crate) fn measures(&self, round: usize) -> bool {
        round >= self.warmup
    }
}
