//! Draws a [`Window`] as SVG.
//!
//! It writes SVG directly, since plotting libraries have no bars on lanes, and merges the pieces of
//! one colour on a lane into one path, so that a picture of ten thousand slices stays small.

use super::text::short;
use super::window::{FiberState, Row, Span, Window};
use cringle_report::SVG_START;
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 14.0;
const LANE: f64 = 18.0;
const STEP: f64 = 22.0;
const OP: f64 = 9.0;
const OP_STEP: f64 = 11.0;
const DEPTH: f64 = 60.0;
/// The most rows of operations drawn; operations that would need more are only counted.
const MOST_OP_ROWS: usize = 32;
/// Pieces closer together than this are merged.
const GAP: f64 = 0.4;
/// The mean width of a character in a label.
const CHARACTER: f64 = 5.6;

/// The palette of Okabe and Ito, chosen to be distinguishable with colour blindness.
const COLORS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d"];
const KERNEL: &str = "#9a9a9a";
const WAITING: &str = "#c8c8c8";

/// Draws `window`; `start` is the start of the trace, from which the time axis counts.
pub(super) fn of(window: &Window, start: u64, title: &str) -> String {
    let mut picture = Picture::new(window);
    picture.section("workers");
    for lane in &window.lanes {
        picture.lane(lane);
    }
    if !window.rows.is_empty() {
        picture.section("fibers");
    }
    for row in &window.rows {
        picture.row(row);
    }
    if window.fibers_left_out > 0 {
        picture.note(&format!("… and {} more", window.fibers_left_out));
    }
    picture.ops(&window.ops);
    picture.depth(&window.depth);
    picture.finish(start, title)
}

/// Assigns colours to names in the order in which they first appear.
struct Palette {
    names: Vec<String>,
    colors: [&'static str; COLORS.len()],
}

impl Palette {
    fn new(colors: [&'static str; COLORS.len()]) -> Palette {
        Palette { names: Vec::new(), colors }
    }

    fn color(&mut self, name: &str) -> &'static str {
        let place = self.names.iter().position(|other| other == name).unwrap_or_else(|| {
            self.names.push(name.into());
            self.names.len() - 1
        });
        self.colors[place % COLORS.len()]
    }

    /// Returns each colour once, with the first name that has it.
    fn entries(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.colors.into_iter().zip(self.names.iter().map(String::as_str))
    }
}

struct Picture {
    span: Span,
    body: String,
    y: f64,
    fibers: Palette,
    ops: Palette,
}

impl Picture {
    fn new(window: &Window) -> Picture {
        // Operations take the colours in another order, so that few share one with a fiber.
        let mut colors = COLORS;
        colors.reverse();
        colors.rotate_left(1);
        let (fibers, ops) = (Palette::new(COLORS), Palette::new(colors));
        Picture { span: window.span, body: String::new(), y: 58.0, fibers, ops }
    }

    fn x(&self, ns: u64) -> f64 {
        let all = (self.span.to - self.span.from) as f64;
        LEFT + (ns - self.span.from) as f64 / all * (WIDTH - LEFT - RIGHT)
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.body.write_fmt(text).expect("writing to a string does not fail");
        self.body.push('\n');
    }

    fn section(&mut self, name: &str) {
        self.y += 8.0;
        let y = self.y;
        self.put(format_args!(r#"<text class="head" x="8" y="{y:.1}">{}</text>"#, escaped(name)));
        self.y += 6.0;
    }

    fn label(&mut self, name: &str, height: f64) {
        let y = self.y + height - 5.0;
        let most = ((LEFT - 12.0) / CHARACTER) as usize;
        let name = short(name, most);
        self.put(format_args!(r#"<text x="8" y="{y:.1}">{}</text>"#, escaped(&name)));
    }

    fn note(&mut self, text: &str) {
        let y = self.y + 10.0;
        self.put(format_args!(
            r#"<text class="note" x="{LEFT}" y="{y:.1}">{}</text>"#,
            escaped(text)
        ));
        self.y += 16.0;
    }

    /// Draws pieces of one colour as one path.
    fn pieces(&mut self, spans: &[Span], color: &str, opacity: f64, top: f64, height: f64) {
        let mut path = String::new();
        for (from, to) in self.merged(spans) {
            let width = (to - from).max(0.5);
            let _ = write!(path, "M{from:.1} {top:.1}h{width:.1}v{height:.0}h-{width:.1}z");
        }
        if !path.is_empty() {
            let opacity =
                if opacity < 1.0 { format!(r#" opacity="{opacity}""#) } else { String::new() };
            self.put(format_args!(r#"<path fill="{color}"{opacity} d="{path}"/>"#));
        }
    }

    fn merged(&self, spans: &[Span]) -> Vec<(f64, f64)> {
        let mut merged: Vec<(f64, f64)> = Vec::new();
        for span in spans {
            let (from, to) = (self.x(span.from), self.x(span.to));
            match merged.last_mut() {
                Some(last) if from - last.1 < GAP => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        merged
    }

    fn lane(&mut self, lane: &super::window::Lane) {
        self.label(&lane.name, LANE);
        let y = self.y;
        self.pieces(&lane.asleep, "#ececec", 1.0, y + 7.0, 4.0);
        let mut by_name: Vec<(&str, Vec<Span>)> = Vec::new();
        for (name, span) in &lane.slices {
            match by_name.iter_mut().find(|(other, _)| other == name) {
                Some((_, spans)) => spans.push(*span),
                None => by_name.push((name, vec![*span])),
            }
        }
        for (name, spans) in by_name {
            let color = if name.is_empty() { KERNEL } else { self.fibers.color(name) };
            self.pieces(&spans, color, 1.0, y, LANE);
        }
        // Drawn on top of the fiber that entered the kernel.
        self.pieces(&lane.within, KERNEL, 1.0, y, LANE);
        self.y += STEP;
    }

    fn row(&mut self, row: &Row) {
        self.label(&row.name, LANE);
        let y = self.y;
        let name = row.name.rsplit_once(' ').map_or(&row.name[..], |(name, _)| name);
        let color = self.fibers.color(name);
        let of = |wanted: &FiberState| -> Vec<Span> {
            let states = row.states.iter().filter(|(state, _)| state == wanted);
            states.map(|(_, span)| *span).collect()
        };
        let waits = row.states.iter().filter_map(|(state, span)| match state {
            FiberState::Waiting(what) => Some((what, *span)),
            _ => None,
        });
        let waits: Vec<_> = waits.collect();
        let spans: Vec<Span> = waits.iter().map(|(_, span)| *span).collect();
        self.pieces(&spans, WAITING, 1.0, y + 8.0, 2.0);
        self.pieces(&of(&FiberState::Ready), color, 0.35, y + 4.0, LANE - 8.0);
        self.pieces(&of(&FiberState::Running), color, 1.0, y, LANE);
        for (what, span) in waits {
            self.text_within(what, span, y + 6.0);
        }
        for &ns in &row.cancels {
            let x = self.x(ns);
            self.put(format_args!(
                r##"<path stroke="#c00" stroke-width="1.6" d="M{:.1} {:.1}l8 8m0 -8l-8 8"><title>cancel</title></path>"##,
                x - 4.0,
                y + 5.0
            ));
        }
        self.y += STEP;
    }

    /// Writes a text into a span if it fits.
    fn text_within(&mut self, text: &str, span: Span, y: f64) {
        let (from, to) = (self.x(span.from), self.x(span.to));
        if to - from > text.len() as f64 * CHARACTER + 6.0 {
            let x = (from + to) / 2.0;
            self.put(format_args!(
                r#"<text class="small" text-anchor="middle" x="{x:.1}" y="{y:.1}">{}</text>"#,
                escaped(text)
            ));
        }
    }

    /// Draws each operation from queueing to completion, in the fewest rows without overlaps.
    fn ops(&mut self, ops: &[(String, Span)]) {
        if ops.is_empty() {
            return;
        }
        self.section("operations");
        let mut rows: Vec<(u64, Vec<(&str, Span)>)> = Vec::new();
        let mut left_out = 0;
        for (name, span) in ops {
            let free = rows.iter().position(|(until, _)| *until <= span.from);
            match free {
                Some(row) => {
                    rows[row].0 = span.to;
                    rows[row].1.push((name, *span));
                }
                None if rows.len() < MOST_OP_ROWS => rows.push((span.to, vec![(name, *span)])),
                None => left_out += 1,
            }
        }
        for (_, ops) in &rows {
            let y = self.y;
            let mut names: Vec<&str> = ops.iter().map(|(name, _)| *name).collect();
            names.dedup();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let color = self.ops.color(name);
                let spans = ops.iter().filter(|(other, _)| *other == name);
                let spans: Vec<Span> = spans.map(|(_, span)| *span).collect();
                self.pieces(&spans, color, 0.75, y, OP);
            }
            self.y += OP_STEP;
        }
        if left_out > 0 {
            self.note(&format!("… and {left_out} more at the same time"));
        }
    }

    fn depth(&mut self, depth: &[(u64, i64)]) {
        let before = depth.iter().take_while(|(ns, _)| *ns <= self.span.from).last();
        let mut points = vec![(self.span.from, before.map_or(0, |(_, value)| *value))];
        let within = |ns: &u64| *ns > self.span.from && *ns < self.span.to;
        points.extend(depth.iter().copied().filter(|(ns, _)| within(ns)));
        let most = points.iter().map(|(_, value)| *value).max().unwrap_or(0);
        if most <= 0 {
            return;
        }
        self.section("operations in flight");
        let (top, bottom) = (self.y, self.y + DEPTH);
        let mut path = format!("M{LEFT} {bottom:.1}");
        let (mut last_x, mut highest) = (f64::MIN, 0);
        for (ns, value) in points {
            let x = self.x(ns);
            let level = |value: i64| bottom - value as f64 / most as f64 * DEPTH;
            // Points at the same pixel are drawn as one stroke up to the highest and back to the
            // latest.
            let _ = if x - last_x < 0.5 {
                highest = highest.max(value);
                write!(path, "V{:.0}V{:.0}", level(highest), level(value))
            } else {
                highest = value;
                write!(path, "H{x:.1}V{:.0}", level(value))
            };
            last_x = x;
        }
        let _ = write!(path, "H{:.1}V{bottom:.1}z", WIDTH - RIGHT);
        self.put(format_args!(r#"<path fill="{}" opacity="0.6" d="{path}"/>"#, COLORS[5]));
        self.put(format_args!(
            r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{most}</text>"#,
            LEFT - 6.0,
            top + 9.0
        ));
        self.y += DEPTH + 8.0;
    }

    /// Draws the legend: each colour with its name.
    fn legend(&mut self) {
        self.y += 10.0;
        let mut x = 8.0;
        let mut all: Vec<(&str, String)> =
            self.fibers.entries().map(|(color, name)| (color, name.to_owned())).collect();
        all.push((KERNEL, "kernel".into()));
        all.push((WAITING, "waiting, asleep".into()));
        let ops = self.ops.entries();
        all.extend(ops.map(|(color, name)| (color, format!("{name} (operation)"))));
        for (color, name) in all {
            let name = short(&name, 40);
            let width = name.chars().count() as f64 * CHARACTER + 30.0;
            if x + width > WIDTH {
                x = 8.0;
                self.y += 16.0;
            }
            let y = self.y;
            self.put(format_args!(
                r#"<rect x="{x:.0}" y="{:.1}" width="10" height="10" fill="{color}"/><text x="{:.0}" y="{:.1}">{}</text>"#,
                y,
                x + 14.0,
                y + 9.0,
                escaped(&name)
            ));
            x += width;
        }
        self.y += 18.0;
    }

    fn finish(mut self, start: u64, title: &str) -> String {
        let bottom = self.y;
        self.legend();
        let height = self.y;
        let mut out = format!(
            r##"{SVG_START}xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" width="{WIDTH}" height="{height:.0}">
<style>text{{font:11px sans-serif;fill:#222}}.small{{font-size:10px;fill:#666}}.note{{font-size:10px;fill:#666}}.head{{font-weight:bold}}.title{{font-size:15px;font-weight:bold}}</style>
<rect width="100%" height="100%" fill="#fff"/>
<text class="title" x="8" y="22">{}</text>
"##,
            escaped(title)
        );
        let span = self.span.to - self.span.from;
        let step = round_step(span);
        let first = (self.span.from - start).div_ceil(step).saturating_mul(step);
        let mut mark = Some(first);
        // A mark beyond the largest number is none.
        while let Some(at) = mark
            && let Some(ns) = at.checked_add(start)
            && ns <= self.span.to
        {
            let x = self.x(ns);
            let anchor = if x > WIDTH - 30.0 { "end" } else { "middle" };
            let _ = writeln!(
                out,
                r##"<path stroke="#e4e4e4" d="M{x:.1} 46V{bottom:.1}"/><text class="small" text-anchor="{anchor}" x="{x:.1}" y="42">{}</text>"##,
                tick(at, step)
            );
            mark = at.checked_add(step);
        }
        out.push_str(&self.body);
        out.push_str("</svg>\n");
        out
    }
}

/// Formats the label of a mark on the time axis, with as many digits as marks `step` apart need.
fn tick(ns: u64, step: u64) -> String {
    let (unit, name) = match ns {
        0..1_000 => (1.0, "ns"),
        1_000..1_000_000 => (1e3, "µs"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let digits = (unit / step as f64).log10().ceil().max(0.0) as usize;
    format!("{:.digits$} {name}", ns as f64 / unit)
}

/// Returns the distance of marks for at most eight in `span`: 1, 2 or 5 times a power of ten.
fn round_step(span: u64) -> u64 {
    let mut step = 1;
    for factor in [2.0, 2.5, 2.0].into_iter().cycle() {
        if span / step <= 8 {
            break;
        }
        step = (step as f64 * factor) as u64;
    }
    step
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            // XML allows no other control character but tab and line ends.
            '\0'..' ' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
