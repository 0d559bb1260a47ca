//! Plots, as data: what is on the axes, and the points with their spread. [`svg`] draws them.
//!
//! A figure is the median of its rounds; beside it there is always what the rounds were, from the
//! lowest to the highest. Colours are classes, so that one drawing is read in light and in dark.

mod axis;
mod key;
mod lines;
mod marks;
mod rows;
mod text;

pub use axis::{Axis, Scale};
pub use key::Key;

use maud::{Markup, html};
use serde::{Deserialize, Serialize};

/// Of drawings: variables for light and dark, and what each class looks like.
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

/// Something over something, a line for each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lines {
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    pub label: String,
    /// Whose it is: one colour on a page.
    pub name: String,
    pub stroke: Stroke,
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stroke {
    Solid,
    /// A reference from elsewhere, or a variant of what has the same colour.
    Dashed,
    Dotted,
    /// Points that nothing is known between.
    None,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// The lowest and the highest of the rounds.
    pub spread: Option<(f64, f64)>,
    pub marked: bool,
}

/// One figure for each, with all rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rows {
    pub axis: Axis,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub label: String,
    /// Of the rounds; who has none has no row.
    pub samples: Vec<f64>,
}

/// What `samples` are together: the median, the lowest and the highest.
pub fn summary(samples: &[f64]) -> Option<(f64, (f64, f64))> {
    let lowest = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    crate::stats::median(samples.iter().copied()).map(|median| (median, (lowest, highest)))
}

impl Point {
    /// The median of some rounds.
    pub fn of(x: f64, samples: &[f64]) -> Option<Point> {
        let (y, spread) = summary(samples)?;
        Some(Point { x, y, spread: Some(spread), marked: true })
    }
}

impl Series {
    /// A distribution of latencies: its quantiles, of which a few are marked.
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
        // Depths may be named in any order; points at the same place keep theirs.
        series.iter_mut().for_each(|one| one.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
        Plot { title: title.into(), kind: Kind::Lines(Lines { x, y, series }) }
    }

    pub fn rows(title: impl Into<String>, axis: Axis, rows: Vec<Row>) -> Plot {
        let rows = rows.into_iter().filter(|row| !row.samples.is_empty()).collect();
        Plot { title: title.into(), kind: Kind::Rows(Rows { axis, rows }) }
    }

    /// Latencies, with the few that are late drawn as large as the many that are not.
    pub fn latencies(title: impl Into<String>, series: Vec<Series>) -> Plot {
        let x = Axis::new("µs, logarithmic", Scale::Logarithmic);
        Plot::lines(title, x, Axis::new("done within", Scale::Nines), series)
    }

    /// Nothing was measured that it could show.
    pub fn is_empty(&self) -> bool {
        match &self.kind {
            Kind::Lines(lines) => lines.series.is_empty(),
            Kind::Rows(rows) => rows.rows.is_empty(),
        }
    }

    /// Whose colours it needs.
    pub fn names(&self) -> Vec<&str> {
        match &self.kind {
            Kind::Lines(lines) => lines.series.iter().map(|one| one.name.as_str()).collect(),
            Kind::Rows(rows) => rows.rows.iter().map(|row| row.label.as_str()).collect(),
        }
    }
}

/// The drawing, for a page that has the title and the style.
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

/// The drawing as a file of its own, with its title and the page's style.
pub fn standalone(plot: &Plot) -> String {
    const TITLE: f64 = 30.0;
    let drawing = drawing(plot, &Key::of([plot]));
    let (width, height) = (text::WIDTH + 2.0 * TITLE, drawing.height + 2.0 * TITLE);
    let markup = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (width) " " (format!("{height:.0}")) }
            width=(2.0 * width) role="img" {
            title { (plot.title) }
            style { (STYLE) }
            rect class="paper" width="100%" height="100%" {}
            text class="heading" x=(TITLE) y="22" { (text::short(&plot.title, 66)) }
            g transform={ "translate(" (TITLE) " " (TITLE + 6.0) ")" } { (drawing.body) }
        }
    };
    format!("{}\n", markup.into_string())
}

fn drawing(plot: &Plot, key: &Key) -> Drawing {
    match &plot.kind {
        Kind::Lines(lines) => lines::draw(lines, key),
        Kind::Rows(rows) => rows::draw(rows, key),
    }
}

/// A name's mark in its colour, to stand beside the name; nothing for who is in no plot.
pub fn swatch(name: &str, key: &Key) -> Markup {
    html! {
        @if key.number(name).is_some() {
            svg class={ "swatch " (key.class(name)) } viewBox="-6 -6 12 12" aria-hidden="true" {
                (marks::mark(key.mark(name), 0.0, 0.0, ""))
            }
        }
    }
}

/// What a kind of plot gives.
struct Drawing {
    height: f64,
    body: Markup,
}

#[cfg(test)]
mod tests;
