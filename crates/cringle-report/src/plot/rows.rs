//! Rows: a dot for each round, a mark for the median, a line from the lowest to the highest.

use super::axis::Ruler;
use super::key::Key;
use super::marks::mark;
use super::text::{self, LabelRow, WIDTH};
use super::{Drawing, Row, Rows, summary};
use crate::units::figure;
use maud::{Markup, html};

const ROW: f64 = 25.0;
const ABOVE: f64 = 6.0;
const BELOW: f64 = 40.0;
const LONGEST_LABEL: usize = 24;

struct Frame {
    left: f64,
    right: f64,
    ruler: Ruler,
}

impl Frame {
    fn x(&self, value: f64) -> f64 {
        self.left + self.ruler.position(value) * (self.right - self.left)
    }
}

pub(super) fn draw(rows: &Rows, key: &Key) -> Drawing {
    let ruler = Ruler::along(&rows.axis, rows.rows.iter().flat_map(|row| row.samples.clone()));
    let widest = |of: &dyn Fn(&Row) -> String| {
        rows.rows.iter().map(|row| text::width(&of(row))).fold(0.0, f64::max)
    };
    let label = |row: &Row| text::short(&row.label, LONGEST_LABEL);
    let median = |row: &Row| summary(&row.samples).map_or(String::new(), |(m, _)| figure(m));
    let frame = Frame { left: widest(&label) + 12.0, right: WIDTH - widest(&median) - 14.0, ruler };
    let bottom = ABOVE + ROW * rows.rows.len() as f64;
    Drawing {
        height: bottom + BELOW,
        body: html! {
            (axis(&frame, bottom, &rows.axis.name))
            @for (number, row) in rows.rows.iter().enumerate() {
                @let y = ABOVE + ROW * (number as f64 + 0.5);
                text class="label" x="2" y=(format!("{:.1}", y + 4.0)) { (label(row)) }
                (samples(&frame, row, y, key))
                text class="end value" x=(WIDTH - 2.0) y=(format!("{:.1}", y + 4.0)) { (median(row)) }
            }
        },
    }
}

fn axis(frame: &Frame, bottom: f64, name: &str) -> Markup {
    let mut room = LabelRow::new();
    html! {
        @for (value, text) in &frame.ruler.ticks {
            @let at = frame.x(*value);
            @if room.place(at, text) {
                g class="grid" {
                    line x1=(format!("{at:.1}")) x2=(format!("{at:.1}"))
                        y1=(ABOVE) y2=(format!("{:.1}", bottom + 4.0)) {}
                }
                text class="middle" x=(format!("{at:.1}")) y=(format!("{:.1}", bottom + 17.0)) { (text) }
            }
        }
        text class="name end" x=(format!("{:.1}", frame.right)) y=(format!("{:.1}", bottom + 34.0)) { (name) }
    }
}

fn samples(frame: &Frame, row: &Row, y: f64, key: &Key) -> Markup {
    let Some((median, (low, high))) = summary(&row.samples) else { return html! {} };
    let number = |value: f64| format!("{value:.1}");
    let tooltip = match row.samples.len() {
        1 => format!("{}: {}", row.label, figure(median)),
        n => format!(
            "{}: {} ({} to {} in {n} rounds)",
            row.label,
            figure(median),
            figure(low),
            figure(high)
        ),
    };
    html! {
        g class={ "series " (key.class(&row.label)) } {
            title { (tooltip) }
            line class="whisker" x1=(number(frame.x(low))) x2=(number(frame.x(high)))
                y1=(number(y)) y2=(number(y)) {}
            @for sample in &row.samples {
                circle class="round" cx=(number(frame.x(*sample))) cy=(number(y)) r="2.4" {}
            }
            (mark(key.mark(&row.label), frame.x(median), y, ""))
        }
    }
}
