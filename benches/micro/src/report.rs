//! The report of a comparison: a table of its sides, and their ratios.

use common::stats::{Samples, Side, alternate};
use common::table;
use serde::Serialize;

/// A comparison that has been run.
#[derive(Serialize)]
pub(crate) struct Report {
    title: &'static str,
    unit: &'static str,
    sides: Vec<Figures>,
    ratios: Vec<Ratio>,
    notes: Vec<&'static str>,
}

#[derive(Serialize)]
struct Figures {
    name: String,
    median: f64,
    samples: Vec<f64>,
}

#[derive(Serialize)]
struct Ratio {
    of: String,
    to: String,
    median: f64,
    least: f64,
    most: f64,
    /// The largest ratio that meets the bar.
    bar: Option<f64>,
}

/// A comparison that has not run yet.
pub(crate) struct Contest<'a> {
    title: &'static str,
    names: Vec<String>,
    sides: Vec<Side<'a>>,
}

impl<'a> Contest<'a> {
    pub(crate) fn new(title: &'static str) -> Contest<'a> {
        Contest { title, names: Vec::new(), sides: Vec::new() }
    }

    /// Adds a side; `run` runs it once, and returns nanoseconds.
    pub(crate) fn side(mut self, name: &str, run: impl FnMut() -> f64 + 'a) -> Contest<'a> {
        self.names.push(name.to_owned());
        self.sides.push(Box::new(run));
        self
    }

    /// Runs every side once in each round.
    pub(crate) fn run(mut self, rounds: usize) -> Report {
        eprintln!("{} …", self.title);
        let all = alternate(rounds, &mut self.sides);
        let figures = |(name, Samples(samples)): (String, Samples)| {
            let median = Samples(samples.clone()).median();
            Figures { name, median, samples }
        };
        let sides = self.names.into_iter().zip(all).map(figures).collect();
        Report { title: self.title, unit: "ns", sides, ratios: vec![], notes: vec![] }
    }
}

impl Report {
    /// Returns a report of figures that were measured once.
    pub(crate) fn of_single_figures(
        title: &'static str,
        unit: &'static str,
        figures: Vec<(String, f64)>,
    ) -> Report {
        let figure = |(name, median)| Figures { name, median, samples: vec![median] };
        let sides = figures.into_iter().map(figure).collect();
        Report { title, unit, sides, ratios: vec![], notes: vec![] }
    }

    /// Adds the ratio of the side `of` to the fastest of the sides `to`.
    pub(crate) fn ratio(mut self, of: &str, to: &[&str], bar: Option<f64>) -> Report {
        let find = |name: &str| {
            let found = self.sides.iter().find(|side| side.name == name);
            found.unwrap_or_else(|| panic!("no side is called {name}"))
        };
        let others = to.iter().map(|name| find(name));
        let other = others.min_by(|a, b| a.median.total_cmp(&b.median)).expect("at least one side");
        let ratio = Samples(find(of).samples.clone()).over(&Samples(other.samples.clone()));
        let (of, to) = (of.to_owned(), other.name.clone());
        let (median, least, most) = (ratio.median(), ratio.min(), ratio.max());
        self.ratios.push(Ratio { of, to, median, least, most, bar });
        self
    }

    /// Adds a figure that must not exceed `bar`.
    pub(crate) fn figure_bar(mut self, of: &str, to: &str, figure: f64, bar: f64) -> Report {
        let (of, to) = (of.to_owned(), to.to_owned());
        let ratio = Ratio { of, to, median: figure, least: figure, most: figure, bar: Some(bar) };
        self.ratios.push(ratio);
        self
    }

    pub(crate) fn note(mut self, note: &'static str) -> Report {
        self.notes.push(note);
        self
    }

    pub(crate) fn print(&self) {
        println!("\n### {}\n", self.title);
        let row = |side: &Figures| {
            let samples = Samples(side.samples.clone());
            let range = match side.samples.len() {
                1 => String::new(),
                _ => format!("{} – {}", figure(samples.min()), figure(samples.max())),
            };
            vec![side.name.clone(), figure(side.median), range]
        };
        let rows: Vec<_> = self.sides.iter().map(row).collect();
        table::print(&["", self.unit, "range"], &rows);
        println!();
        self.ratios.iter().for_each(Ratio::print);
        self.notes.iter().for_each(|note| println!("{note}"));
    }
}

impl Ratio {
    fn print(&self) {
        let range = if self.least < self.most {
            format!(" ({:.2} – {:.2})", self.least, self.most)
        } else {
            String::new()
        };
        let bar = match self.bar {
            Some(bar) if self.median <= bar => format!("; the bar is {}: met", figure(bar)),
            Some(bar) => format!("; the bar is {}: MISSED", figure(bar)),
            None => String::new(),
        };
        println!("{} / {}: {:.2}{range}{bar}", self.of, self.to, self.median);
    }
}

/// Formats a figure with three significant digits.
fn figure(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}
