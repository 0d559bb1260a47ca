//! Axes: map a value to a position, and choose the ticks.

use crate::units::count;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Axis {
    pub name: String,
    pub scale: Scale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scale {
    /// Starts at zero.
    Linear,
    Logarithmic,
    /// Base 2, with a tick at each value that was measured.
    Doubling,
    /// Shares of a whole: 90 %, 99 %, 99.9 % at equal distances.
    Nines,
}

impl Axis {
    pub fn new(name: impl Into<String>, scale: Scale) -> Axis {
        Axis { name: name.into(), scale }
    }

    /// Returns a linear axis, or a logarithmic one if the small values could not be distinguished.
    pub fn fitting(name: &str, values: impl Iterator<Item = f64>) -> Axis {
        const FAR: f64 = 20.0;
        let (low, high) = bounds(values);
        if low > 0.0 && high / low > FAR {
            Axis::new(format!("{name}, logarithmic"), Scale::Logarithmic)
        } else {
            Axis::new(name, Scale::Linear)
        }
    }
}

/// An axis with the range of its values and its ticks.
pub(super) struct Ruler {
    scale: Scale,
    /// The range, in the scale's own units.
    low: f64,
    high: f64,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Ruler {
    pub(super) fn along(axis: &Axis, values: impl Iterator<Item = f64>) -> Ruler {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let scale = axis.scale;
        let (first, last) = bounds(values.iter().copied());
        let (first, last) = if first > last { (0.0, 1.0) } else { (first, last) };
        let mut ruler = Ruler { scale, low: 0.0, high: 1.0, ticks: Vec::new() };
        (ruler.low, ruler.high) = match scale {
            Scale::Linear => (0.0, if last > 0.0 { last * 1.06 } else { 1.0 }),
            Scale::Nines => (0.0, ruler.at(last).max(1.0) * 1.02),
            Scale::Logarithmic => (ruler.at(first) - 0.06, ruler.at(last) + 0.06),
            Scale::Doubling => (ruler.at(first) - 0.15, ruler.at(last) + 0.15),
        };
        ruler.ticks = match scale {
            Scale::Linear => {
                steps(0.0, ruler.high, 4.0).map(|tick| (tick, tick_label(tick))).collect()
            }
            Scale::Nines => ruler.nines(),
            Scale::Logarithmic => ruler.round(first, last),
            Scale::Doubling => distinct(values).map(|tick| (tick, tick_label(tick))).collect(),
        };
        ruler
    }

    /// Returns the position of a value, from 0 at the beginning to 1 at the end.
    pub(super) fn position(&self, value: f64) -> f64 {
        ((self.at(value) - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Converts a value to the scale's units.
    fn at(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Logarithmic => value.max(f64::MIN_POSITIVE).log10(),
            Scale::Doubling => value.max(f64::MIN_POSITIVE).log2(),
            Scale::Nines => -(1.0 - value).max(1e-9).log10(),
        }
    }

    fn nines(&self) -> Vec<(f64, String)> {
        let all = [(0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %")];
        let all = all.into_iter().chain([(0.9999, "99.99 %"), (0.99999, "99.999 %")]);
        let within = all.filter(|(share, _)| self.at(*share) <= self.high);
        within.map(|(share, text)| (share, text.into())).collect()
    }

    /// Returns the ticks 1, 2, 5, 10, 20, 50, …; only powers of ten over many decades, and round
    /// numbers within a part of one.
    fn round(&self, first: f64, last: f64) -> Vec<(f64, String)> {
        let each: &[f64] = if self.high - self.low > 3.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decades = self.low.floor() as i32..=self.high.ceil() as i32;
        let ticks = decades.flat_map(|ten| each.iter().map(move |step| step * 10f64.powi(ten)));
        let mut ticks: Vec<f64> =
            ticks.filter(|tick| (self.low..=self.high).contains(&self.at(*tick))).collect();
        if ticks.len() < 3 {
            ticks = steps(first, last, 3.0).filter(|tick| *tick >= first).collect();
        }
        if ticks.is_empty() {
            ticks.push(first);
        }
        ticks.into_iter().map(|tick| (tick, tick_label(tick))).collect()
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

fn distinct(mut values: Vec<f64>) -> impl Iterator<Item = f64> {
    values.sort_by(f64::total_cmp);
    values.dedup();
    values.into_iter()
}

/// Returns round values from `low` to `high`, in `parts` to twice as many steps.
fn steps(low: f64, high: f64, parts: f64) -> impl Iterator<Item = f64> {
    let raw = (high - low).max(1e-9) / parts;
    let ten = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0].map(|n| n * ten).into_iter().rfind(|step| *step <= raw);
    let step = step.unwrap_or(ten);
    let first = (low / step).floor();
    (0..).map(move |n| (first + f64::from(n)) * step).take_while(move |tick| *tick <= high)
}

/// Formats a value briefly: `80k`, `1.5M`.
pub(super) fn tick_label(value: f64) -> String {
    let short = |value: f64| {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    };
    match value.abs() {
        v if v >= 1e6 => short(value / 1e6) + "M",
        v if v >= 1e4 => short(value / 1e3) + "k",
        v if v >= 1e3 => count(value),
        _ => short(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(scale: Scale, values: &[f64]) -> Vec<String> {
        let ruler = Ruler::along(&Axis::new("", scale), values.iter().copied());
        for value in values {
            assert!((0.0..=1.0).contains(&ruler.position(*value)), "{value}");
        }
        ruler.ticks.into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(Scale::Linear, &[81_234.0]), ["0", "20k", "40k", "60k", "80k"]);
        assert_eq!(ticks(Scale::Linear, &[0.43]), ["0", "0.1", "0.2", "0.3", "0.4"]);
        assert_eq!(ticks(Scale::Logarithmic, &[16.0, 600.0]), ["20", "50", "100", "200", "500"]);
        assert_eq!(ticks(Scale::Logarithmic, &[1.0, 12_000.0]), ["1", "10", "100", "1,000", "10k"]);
        assert_eq!(ticks(Scale::Logarithmic, &[101.0, 119.0]), ["105", "110", "115"]);
        assert_eq!(ticks(Scale::Doubling, &[32.0, 1.0, 4.0, 4.0]), ["1", "4", "32"]);
        assert_eq!(ticks(Scale::Nines, &[0.0, 0.999]), ["50 %", "90 %", "99 %", "99.9 %"]);
    }

    #[test]
    fn an_axis_needs_no_more_than_one_value() {
        assert_eq!(ticks(Scale::Linear, &[]).first().unwrap(), "0");
        assert!(ticks(Scale::Linear, &[0.0]).len() > 2);
        assert_eq!(ticks(Scale::Doubling, &[32.0]), ["32"]);
        assert!(!ticks(Scale::Logarithmic, &[100.0]).is_empty());
    }

    #[test]
    fn nines_have_equal_distances() {
        let ruler = Ruler::along(&Axis::new("", Scale::Nines), [0.9999].into_iter());
        let step = |a: f64, b: f64| ruler.position(b) - ruler.position(a);
        assert!((step(0.9, 0.99) - step(0.99, 0.999)).abs() < 1e-9);
        assert!(step(0.0, 0.9) > 0.0);
    }

    #[test]
    fn values_far_apart_get_a_logarithmic_axis() {
        let scale = |values: &[f64]| Axis::fitting("IOPS", values.iter().copied()).scale;
        assert_eq!(scale(&[10.0, 100.0]), Scale::Linear);
        assert_eq!(scale(&[10.0, 1000.0]), Scale::Logarithmic);
        assert_eq!(scale(&[0.0, 1000.0]), Scale::Linear);
    }
}
