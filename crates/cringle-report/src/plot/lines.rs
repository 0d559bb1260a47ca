//! Lines of medians, with bands from the lowest to the highest round.

use super::axis::{Ruler, tick_label};
use super::key::Key;
use super::marks::mark;
use super::text::{self, LabelRow, WIDTH};
use super::{Drawing, Lines, Point, Series, Stroke};
use maud::{Markup, html};

const HEIGHT: f64 = 236.0;
const ABOVE: f64 = 24.0;
const RIGHT: f64 = 14.0;
/// The height of the ticks, the axis name, and the gap above the legend.
const BELOW: f64 = 46.0;
const LEGEND_ROW: f64 = 20.0;

struct Frame {
    left: f64,
    x: Ruler,
    y: Ruler,
}

impl Frame {
    fn x(&self, value: f64) -> f64 {
        self.left + self.x.position(value) * (WIDTH - RIGHT - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        ABOVE + (1.0 - self.y.position(value)) * HEIGHT
    }

    fn at(&self, point: (f64, f64)) -> String {
        format!("{:.1} {:.1}", self.x(point.0), self.y(point.1))
    }
}

pub(super) fn draw(lines: &Lines, key: &Key) -> Drawing {
    let points = || lines.series.iter().flat_map(|one| &one.points);
    let reach = |point: &Point| {
        let (low, high) = point.spread.unwrap_or((point.y, point.y));
        [low, point.y, high]
    };
    let y = Ruler::along(&lines.y, points().flat_map(reach));
    let widest = y.ticks.iter().map(|(_, text)| text::width(text)).fold(0.0, f64::max);
    let x = Ruler::along(&lines.x, points().map(|point| point.x));
    let frame = Frame { left: widest + 12.0, x, y };
    let legend = legend(lines, key);
    Drawing {
        height: ABOVE + HEIGHT + BELOW + legend.height,
        body: html! {
            (axes(&frame, lines))
            @for one in &lines.series { (bands(&frame, one, key)) }
            @for one in &lines.series { (series(&frame, one, key, lines)) }
            (legend.body)
        },
    }
}

fn axes(frame: &Frame, lines: &Lines) -> Markup {
    let (right, bottom) = (WIDTH - RIGHT, ABOVE + HEIGHT);
    let number = |value: f64| format!("{value:.1}");
    let mut room = LabelRow::new();
    let ticks: Vec<(f64, &str)> = (frame.x.ticks.iter())
        .map(|(value, text)| (frame.x(*value), text.as_str()))
        .filter(|(at, text)| room.place(*at, text))
        .collect();
    html! {
        g class="grid" {
            @for (value, _) in &frame.y.ticks {
                line x1=(number(frame.left)) x2=(number(right))
                    y1=(number(frame.y(*value))) y2=(number(frame.y(*value))) {}
            }
            @for (at, _) in &ticks {
                line x1=(number(*at)) x2=(number(*at))
                    y1=(number(bottom)) y2=(number(bottom + 4.0)) {}
            }
        }
        @for (value, text) in &frame.y.ticks {
            text class="end" x=(number(frame.left - 7.0)) y=(number(frame.y(*value) + 4.0)) { (text) }
        }
        @for (at, text) in &ticks {
            text class="middle" x=(number(*at)) y=(number(bottom + 17.0)) { (text) }
        }
        text class="name" x="2" y="13" { (lines.y.name) }
        text class="name end" x=(number(right)) y=(number(bottom + 34.0)) { (lines.x.name) }
    }
}

/// Draws the area between the lowest and the highest round.
fn bands(frame: &Frame, one: &Series, key: &Key) -> Markup {
    let spread: Vec<(f64, (f64, f64))> =
        one.points.iter().filter_map(|point| Some((point.x, point.spread?))).collect();
    if spread.len() < 2 {
        return html! {};
    }
    let high = spread.iter().map(|(x, (_, high))| frame.at((*x, *high)));
    let low = spread.iter().rev().map(|(x, (low, _))| frame.at((*x, *low)));
    let outline: Vec<String> = high.chain(low).collect();
    html! {
        g class=(key.class(&one.name)) { path class="band" d=(format!("M{}Z", outline.join("L"))) {} }
    }
}

fn series(frame: &Frame, one: &Series, key: &Key, lines: &Lines) -> Markup {
    let path: Vec<String> = one.points.iter().map(|point| frame.at((point.x, point.y))).collect();
    let shape = key.mark(&one.name);
    html! {
        g class={ "series " (key.class(&one.name)) } {
            title { (one.label) }
            @if path.len() > 1 { path class={ "line " (dashes(one.stroke)) } d=(format!("M{}", path.join("L"))) {} }
            @for point in one.points.iter().filter(|point| point.marked) {
                (whisker(frame, point))
                (mark(shape, frame.x(point.x), frame.y(point.y), &tooltip(one, point, lines)))
            }
        }
    }
}

fn whisker(frame: &Frame, point: &Point) -> Markup {
    let Some((low, high)) = point.spread else { return html! {} };
    let (x, low, high) = (format!("{:.1}", frame.x(point.x)), frame.y(low), frame.y(high));
    html! {
        line class="whisker" x1=(x) x2=(x) y1=(format!("{low:.1}")) y2=(format!("{high:.1}")) {}
    }
}

fn dashes(stroke: Stroke) -> &'static str {
    match stroke {
        Stroke::Solid => "",
        Stroke::Dashed => "dashed",
        Stroke::Dotted => "dotted",
    }
}

fn tooltip(one: &Series, point: &Point, lines: &Lines) -> String {
    use super::Scale;
    use crate::units::figure;
    if lines.y.scale == Scale::Nines {
        return format!("{}: {} % within {} µs", one.label, point.y * 100.0, figure(point.x));
    }
    let rounds = match point.spread {
        Some((low, high)) if low < high => format!(" ({} to {})", figure(low), figure(high)),
        _ => String::new(),
    };
    format!("{} at {}: {}{rounds}", one.label, tick_label(point.x), figure(point.y))
}

/// Draws each label with its stroke and its mark, in as many rows as needed.
fn legend(lines: &Lines, key: &Key) -> Drawing {
    const SWATCH: f64 = 33.0;
    let labels: Vec<String> = lines.series.iter().map(|one| text::short(&one.label, 48)).collect();
    let widest = labels.iter().map(|label| text::width(label)).fold(0.0, f64::max);
    let columns = ((WIDTH / (SWATCH + widest + 8.0)) as usize).clamp(1, labels.len().max(1));
    let position = |number: usize| {
        let (row, column) = (number / columns, number % columns);
        let x = 2.0 + column as f64 * WIDTH / columns as f64;
        (x, ABOVE + HEIGHT + BELOW + 8.0 + row as f64 * LEGEND_ROW)
    };
    let placed: Vec<_> = lines.series.iter().zip(labels).zip((0..).map(position)).collect();
    let body = html! {
        g class="legend" {
            @for ((one, label), (x, y)) in &placed {
                g class=(key.class(&one.name)) {
                    path class={ "line " (dashes(one.stroke)) }
                        d=(format!("M{x:.1} {:.1}h26", y - 4.0)) {}
                    (mark(key.mark(&one.name), x + 13.0, y - 4.0, ""))
                    text x=(format!("{:.1}", x + SWATCH)) y=(format!("{y:.1}")) { (label) }
                }
            }
        }
    };
    Drawing { height: placed.len().div_ceil(columns) as f64 * LEGEND_ROW, body }
}
