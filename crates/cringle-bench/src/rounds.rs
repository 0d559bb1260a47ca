//! Rounds: `--repeat` and `--warmup`, the order of the subjects in a round, and the progress bar.

use crate::experiment::{Line, Named};
use crate::latency::Latencies;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use cringle_report::failure::Failure;
use cringle_report::units;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The most rounds.
pub(crate) const MOST_ROUNDS: u64 = 1_000_000;

/// Parses a number from 1 to `most`.
pub(crate) fn up_to(most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=most)
}

/// Parses the length of a run.
pub(crate) fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds =
        text.parse().ok().filter(|seconds| (f64::MIN_POSITIVE..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "it must be more than 0 and at most a day, in seconds".into())
}

/// Parses a size that is not 0.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    match units::parse_size(text)? {
        0 => Err("it must be more than 0".into()),
        bytes => Ok(bytes),
    }
}

// No doc comment on the type: clap would use it as the description of the whole command.
#[derive(Args)]
pub struct Rounds<const REPEAT: usize, const WARMUP: usize> {
    /// Rounds to measure; the figures are their medians.
    #[arg(
        long,
        alias = "runs",
        default_value_t = REPEAT,
        value_parser = up_to(MOST_ROUNDS),
        value_name = "N"
    )]
    pub repeat: usize,

    /// Rounds to run first and discard.
    #[arg(
        long,
        default_value_t = WARMUP,
        value_parser = RangedU64ValueParser::<usize>::new().range(..=MOST_ROUNDS),
        value_name = "N"
    )]
    pub warmup: usize,
}

impl<const REPEAT: usize, const WARMUP: usize> Rounds<REPEAT, WARMUP> {
    /// The number of all rounds.
    pub(crate) fn total(&self) -> usize {
        self.warmup + self.repeat
    }

    /// Returns the rounds: their numbers, and whether each is measured.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, bool)> {
        (0..self.total()).map(|round| (round, round >= self.warmup))
    }
}

/// Measures each line once, in the order of the round. Keeps the samples if the round `counts`.
pub(crate) fn turns<K: Named, S>(
    (round, counts): (usize, bool),
    lines: &mut [Line<K, S>],
    bar: &ProgressBar,
    mut measure: impl FnMut(&K) -> Result<(S, Latencies), Failure>,
) -> Result<(), Failure> {
    for at in of_round(round, lines.len()) {
        let line = &mut lines[at];
        bar.set_message(line.subject.name());
        let (sample, latencies) = measure(&line.subject)?;
        bar.inc(1);
        if counts {
            line.latencies.merge(&latencies);
            line.samples.push(sample);
        }
    }
    Ok(())
}

/// Returns the order of the `len` subjects in a round: forwards in even rounds, backwards in odd
/// ones, so that a drift within a round does not always favour the same subject.
pub(crate) fn of_round(round: usize, len: usize) -> Vec<usize> {
    let forwards = 0..len;
    if round.is_multiple_of(2) { forwards.collect() } else { forwards.rev().collect() }
}

/// Returns each value once, in the order of its first occurrence.
pub(crate) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

/// Returns the members of `all` that are in `named`, in the order of `all`; all of them if none is
/// named.
pub(crate) fn selected<T: Copy + PartialEq>(all: &[T], named: &[T]) -> Vec<T> {
    all.iter().copied().filter(|one| named.is_empty() || named.contains(one)).collect()
}

/// A progress bar on standard error, hidden if that is no terminal.
///
/// It is drawn between the runs only: a thread that redraws it would take CPU time and context
/// switches from the measured work.
pub struct Progress {
    shown: bool,
}

impl Progress {
    pub fn new(shown: bool) -> Progress {
        Progress { shown }
    }

    pub(crate) fn bytes(&self, total: u64, what: &'static str) -> ProgressBar {
        let template = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}";
        self.bar(total, template).with_message(what)
    }

    pub fn runs(&self, total: usize) -> ProgressBar {
        self.bar(total as u64, "[{bar:30}] {pos}/{len} runs, {eta} left  {msg}")
    }

    fn bar(&self, total: u64, template: &str) -> ProgressBar {
        if !self.shown {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template(template).expect("the templates are constants");
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        bar.set_style(style.progress_chars("=> "));
        bar
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_alternate_their_direction() {
        assert_eq!(of_round(0, 3), [0, 1, 2]);
        assert_eq!(of_round(1, 3), [2, 1, 0]);
    }

    #[test]
    fn values_are_selected_once_and_in_order() {
        assert_eq!(distinct([3, 1, 3, 2, 1]), [3, 1, 2]);
        assert_eq!(selected(&[1, 2, 3], &[3, 1]), [1, 3]);
        assert_eq!(selected(&[1, 2, 3], &[]), [1, 2, 3]);
    }
}
