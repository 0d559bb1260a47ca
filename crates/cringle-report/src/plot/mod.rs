//! Plots as data: axes, and points with their spread. [`svg`] draws them.
//!
//! A plot shows the median of the rounds and always their range, from the lowest to the highest.
//! Colours are CSS classes, so that one drawing fits a light and a dark page.

mod axis;
mod key;
mod lines;
mod marks;
mod rows;
mod text;

pub use axis::{Axis, Scale};
pub use key::Key;

use crate::stats;
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

/// The style sheet of drawings: the colours of a light and a dark page, and the classes.
pub const STYLE: &str = include_str!("style.css");

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plot {
    pub title: String,
    pub kind: Kind,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Kind {
    Lines(Lines),
    Rows(Rows),
}

/// Lines over a common axis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lines {
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    pub label: String,
    /// The name that determines the colour and the mark. Several series of a page may share one.
    pub name: String,
    pub stroke: Stroke,
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stroke {
    Solid,
    /// A reference (fio).
    Dashed,
    /// A variant of a series of the same colour.
    Dotted,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// The lowest and the highest of the rounds.
    pub spread: Option<(f64, f64)>,
    /// Whether the point has a mark and a tooltip.
    pub marked: bool,
}

/// A row for each subject, with a dot for each round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rows {
    pub axis: Axis,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub label: String,
    /// One value for each round. A row without samples is not drawn.
    pub samples: Vec<f64>,
}

/// Returns the median and the range of `samples`, or `None` without samples.
fn summary(samples: &[f64]) -> Option<(f64, (f64, f64))> {
    let samples = || samples.iter().copied();
    Some((stats::median(samples())?, stats::range(samples())?))
}

impl Point {
    /// Returns the median of some rounds with their range, or `None` without samples.
    pub fn of(x: f64, samples: &[f64]) -> Option<Point> {
        let (y, spread) = summary(samples)?;
        Some(Point { x, y, spread: Some(spread), marked: true })
    }
}

impl Series {
    /// Returns a distribution of latencies from its quantiles, the usual ones marked.
    pub fn distribution(name: String, quantiles: &[(f64, f64)]) -> Series {
        const MARKED: [f64; 4] = [0.5, 0.9, 0.99, 0.999];
        let point = |&(share, us): &(f64, f64)| Point {
            x: us,
            y: share,
            spread: None,
            marked: MARKED.contains(&share),
        };
        let points = quantiles.iter().map(point).collect();
        Series { label: name.clone(), name, stroke: Stroke::Solid, points }
    }
}

impl Plot {
    pub fn lines(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Plot {
        let mut series: Vec<Series> =
            series.into_iter().filter(|one| !one.points.is_empty()).collect();
        // The command line may name the values of x in any order. The sort is stable.
        series.iter_mut().for_each(|one| one.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
        Plot { title: title.into(), kind: Kind::Lines(Lines { x, y, series }) }
    }

    /// Returns a plot of rows, with an axis that [fits](Axis::fitting) all samples.
    pub fn rows(title: impl Into<String>, unit: &str, rows: Vec<Row>) -> Plot {
        let axis = Axis::fitting(unit, rows.iter().flat_map(|row| &row.samples).copied());
        let rows = rows.into_iter().filter(|row| !row.samples.is_empty()).collect();
        Plot { title: title.into(), kind: Kind::Rows(Rows { axis, rows }) }
    }

    /// Returns a plot of distributions, with an axis that gives as much room to the slowest tenth
    /// as to the rest.
    pub fn latencies(title: impl Into<String>, series: Vec<Series>) -> Plot {
        let x = Axis::new("µs, logarithmic", Scale::Logarithmic);
        Plot::lines(title, x, Axis::new("done within", Scale::Nines), series)
    }

    /// Whether the plot has no samples to show.
    pub fn is_empty(&self) -> bool {
        match &self.kind {
            Kind::Lines(lines) => lines.series.is_empty(),
            Kind::Rows(rows) => rows.rows.is_empty(),
        }
    }

    /// The names that need a colour.
    pub fn names(&self) -> Vec<&str> {
        match &self.kind {
            Kind::Lines(lines) => lines.series.iter().map(|one| one.name.as_str()).collect(),
            Kind::Rows(rows) => rows.rows.iter().map(|row| row.label.as_str()).collect(),
        }
    }
}

/// Draws a plot for a page, which shows its title and contains the style sheet.
pub fn svg(plot: &Plot, key: &Key) -> Markup {
    let drawing = drawing(plot, key);
    let view = format!("0 0 {} {:.0}", text::WIDTH, drawing.height);
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(view) role="img" {
            title { (plot.title) }
            (drawing.body)
        }
    }
}

fn drawing(plot: &Plot, key: &Key) -> Drawing {
    match &plot.kind {
        Kind::Lines(lines) => lines::draw(lines, key),
        Kind::Rows(rows) => rows::draw(rows, key),
    }
}

/// Draws a name's mark in its colour, or nothing if no plot of the page has that name.
pub fn swatch(name: &str, key: &Key) -> Markup {
    html! {
        @if key.number(name).is_some() {
            svg class={ "swatch " (key.class(name)) } viewBox="-6 -6 12 12" aria-hidden="true" {
                (marks::mark(key.mark(name), 0.0, 0.0, ""))
            }
        }
    }
}

/// The elements of a drawing, and its height.
struct Drawing {
    height: f64,
    body: Markup,
}

#[cfg(test)]
mod tests;
