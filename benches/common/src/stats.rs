//! Rounds in which the sides of a comparison alternate, and statistics of their samples.

/// The samples of one side, one for each round.
#[derive(Clone, Debug, Default)]
pub struct Samples(pub Vec<f64>);

impl Samples {
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
        }
    }

    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    /// Returns the ratio in each round, so that a disturbance of a whole round cancels out.
    pub fn over(&self, other: &Samples) -> Samples {
        Samples(self.0.iter().zip(&other.0).map(|(this, other)| this / other).collect())
    }
}

/// Returns the order of `count` sides in a round. It is reversed in every second round, so that no
/// side always follows the same one.
pub fn order(round: usize, count: usize) -> Vec<usize> {
    let forwards = 0..count;
    if round.is_multiple_of(2) { forwards.collect() } else { forwards.rev().collect() }
}

/// One side of a comparison: runs once, and returns its figure.
pub type Side<'a> = Box<dyn FnMut() -> f64 + 'a>;

/// Runs every side once in each round, in changing order.
pub fn alternate(rounds: usize, sides: &mut [Side<'_>]) -> Vec<Samples> {
    let mut samples = vec![Samples::default(); sides.len()];
    for round in 0..rounds {
        for at in order(round, sides.len()) {
            samples[at].0.push(sides[at]());
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_even_count_averages_middle_two() {
        assert_eq!(Samples(vec![4.0, 1.0, 3.0, 2.0]).median(), 2.5);
        assert_eq!(Samples(vec![9.0, 1.0, 5.0]).median(), 5.0);
    }

    #[test]
    fn sides_run_once_a_round_in_changing_order() {
        assert_eq!(order(0, 3), [0, 1, 2]);
        assert_eq!(order(1, 3), [2, 1, 0]);
        let mut sides: Vec<Side<'_>> = vec![Box::new(|| 1.0), Box::new(|| 2.0)];
        let samples = alternate(3, &mut sides);
        assert_eq!(samples[1].over(&samples[0]).0, [2.0, 2.0, 2.0]);
    }
}
