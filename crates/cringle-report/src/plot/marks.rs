//! Marks: a shape for each name, for readers who cannot distinguish the colours.

use maud::{Markup, html};

const SHAPES: usize = 8;

/// Draws the mark with this number, centred at `x` and `y`, with a tooltip unless `title` is empty.
pub(super) fn mark(number: usize, x: f64, y: f64, title: &str) -> Markup {
    let (x1, y1) = (format!("{x:.1}"), format!("{y:.1}"));
    let title = html! { @if !title.is_empty() { title { (title) } } };
    let polygon = |points: &[(f64, f64)], class: &str| {
        let all: Vec<String> =
            points.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
        html! { polygon class=(class) points=(all.join(" ")) { (title) } }
    };
    let square = |side: f64, class: &str| {
        let half = side / 2.0;
        polygon(&[(-half, -half), (half, -half), (half, half), (-half, half)], class)
    };
    match number % SHAPES {
        0 => html! { circle class="mark" cx=(x1) cy=(y1) r="3.8" { (title) } },
        1 => square(7.0, "mark"),
        2 => polygon(&[(0.0, -4.8), (4.6, 3.4), (-4.6, 3.4)], "mark"),
        3 => polygon(&[(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)], "mark"),
        4 => polygon(&[(0.0, 4.8), (4.6, -3.4), (-4.6, -3.4)], "mark"),
        5 => html! { circle class="mark open" cx=(x1) cy=(y1) r="3.6" { (title) } },
        6 => square(6.6, "mark open"),
        _ => polygon(&[(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)], "mark open"),
    }
}
