//! Rounds in which the candidates take turns, and what is said of their samples.

/// What one candidate scored, a number for each round.
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

    pub fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    pub fn most(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    /// Round by round, this over the other: what disturbs a whole round cancels out.
    pub fn over(&self, other: &Samples) -> Samples {
        Samples(self.0.iter().zip(&other.0).map(|(this, other)| this / other).collect())
    }
}

/// The order in which `count` candidates take their turn in a round: there and back again, so that
/// none always follows the same one.
pub fn order(round: usize, count: usize) -> Vec<usize> {
    let there = 0..count;
    if round.is_multiple_of(2) { there.collect() } else { there.rev().collect() }
}

/// One side of a comparison: runs once, and says what it took.
pub type Side<'a> = Box<dyn FnMut() -> f64 + 'a>;

/// Every side once in each round, in changing order.
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
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(Samples(vec![4.0, 1.0, 3.0, 2.0]).median(), 2.5);
        assert_eq!(Samples(vec![9.0, 1.0, 5.0]).median(), 5.0);
    }

    #[test]
    fn every_side_runs_once_a_round_and_the_order_turns() {
        assert_eq!(order(0, 3), [0, 1, 2]);
        assert_eq!(order(1, 3), [2, 1, 0]);
        let mut sides: Vec<Side<'_>> = vec![Box::new(|| 1.0), Box::new(|| 2.0)];
        let samples = alternate(3, &mut sides);
        assert_eq!(samples[1].over(&samples[0]).0, [2.0, 2.0, 2.0]);
    }
}
