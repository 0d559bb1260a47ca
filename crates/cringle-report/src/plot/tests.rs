//! Tests of drawings of invented figures, parsed as XML.

use super::*;
use roxmltree::{Document, Node};

fn series(label: &str, points: &[(f64, f64)]) -> Series {
    let point = |&(x, y): &(f64, f64)| Point::of(x, &[y * 0.9, y, y * 1.3]).unwrap();
    let points = points.iter().map(point).collect();
    Series { label: label.into(), name: label.into(), stroke: Stroke::Solid, points }
}

fn over_depth(labels: &[&str]) -> Plot {
    let depths = [1.0, 4.0, 16.0, 32.0, 64.0, 128.0];
    let of = |label: &&str| series(label, &depths.map(|depth| (depth, depth * 1000.0)));
    let (x, y) = (Axis::new("in flight", Scale::Doubling), Axis::new("IOPS", Scale::Linear));
    Plot::lines("Operations a second", x, y, labels.iter().map(of).collect())
}

fn rows(labels: &[&str]) -> Plot {
    let row = |label: &&str| Row { label: (*label).into(), samples: vec![1.0, 2.0, 9.0] };
    Plot::rows("Time", "s", labels.iter().map(row).collect())
}

fn latencies(labels: &[&str]) -> Plot {
    let quantiles: Vec<_> = [0.0, 0.5, 0.9, 0.99, 0.999].map(|q| (q, 100.0 / (1.001 - q))).into();
    let of = |label: &&str| Series::distribution((*label).into(), &quantiles);
    Plot::latencies("Latency", labels.iter().map(of).collect())
}

const LABELS: [&str; 10] =
    ["sync", "threads", "mmap", "tokio", "uring", "fibers", "batch", "fio", "a", "b"];
const LONG: &str = "a server with a name that is far longer than any that a user would choose";

/// Returns the line, the left and the right end of a text.
fn extent(node: Node<'_, '_>) -> (f64, f64, f64) {
    let number = |name: &str| node.attribute(name).unwrap().parse::<f64>().unwrap();
    let width = text::width(node.text().unwrap());
    let class = node.attribute("class").unwrap_or_default();
    let left = match class {
        _ if class.contains("middle") => number("x") - width / 2.0,
        _ if class.contains("end") => number("x") - width,
        _ => number("x"),
    };
    (number("y"), left, left + width)
}

#[test]
fn texts_stay_inside_and_do_not_overlap() {
    let long = [&LABELS[..3], &[LONG]].concat();
    for labels in [&LABELS[..1], &LABELS, &long] {
        for plot in [over_depth(labels), rows(labels), latencies(labels)] {
            let text = svg(&plot, &Key::of([&plot])).into_string();
            let document = Document::parse(&text).unwrap();
            let height: f64 = document.root_element().attribute("viewBox").unwrap()
                ["0 0 420 ".len()..]
                .parse()
                .unwrap();
            let texts: Vec<_> = document
                .descendants()
                .filter(|node| node.has_tag_name("text"))
                .map(extent)
                .collect();
            assert!(texts.len() > 5);
            for (n, (y, left, right)) in texts.iter().enumerate() {
                assert!((10.0..height).contains(y), "{text}");
                assert!(*left >= 0.0 && *right <= text::WIDTH + 1.0, "{left} {right}: {text}");
                for (other, from, to) in &texts[..n] {
                    let apart = (y - other).abs() >= 11.0 || right <= from || to <= left;
                    assert!(apart, "{left}..{right} and {from}..{to} at {y}: {text}");
                }
            }
        }
    }
}

#[test]
fn paths_stay_inside_the_drawing() {
    for plot in [over_depth(&LABELS), latencies(&LABELS)] {
        let text = svg(&plot, &Key::of([&plot])).into_string();
        let document = Document::parse(&text).unwrap();
        let paths = document.descendants().filter_map(|node| node.attribute("d"));
        let mut count = 0;
        for path in paths.filter(|path| !path.contains('h')) {
            for point in path[1..].trim_end_matches('Z').split('L') {
                let (x, y) = point.split_once(' ').unwrap();
                let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!((0.0..=text::WIDTH).contains(&x) && (0.0..=300.0).contains(&y), "{path}");
                count += 1;
            }
        }
        assert!(count > LABELS.len() * 3);
    }
}

#[test]
fn points_are_sorted_from_left_to_right() {
    let (x, y) = (Axis::new("", Scale::Doubling), Axis::new("", Scale::Linear));
    let one = series("uring", &[(32.0, 5.0), (1.0, 1.0), (4.0, 2.0)]);
    let Kind::Lines(lines) = Plot::lines("", x, y, vec![one]).kind else { unreachable!() };
    let positions: Vec<_> = lines.series[0].points.iter().map(|point| point.x).collect();
    assert_eq!(positions, [1.0, 4.0, 32.0]);
}

#[test]
fn each_name_has_its_own_colour_and_mark() {
    let plot = over_depth(&LABELS);
    let key = Key::of([&plot]);
    let looks: std::collections::HashSet<_> =
        LABELS.iter().map(|name| (key.class(name), key.mark(name) % 8)).collect();
    assert_eq!(looks.len(), LABELS.len());
}

#[test]
fn tooltips_have_the_median_and_the_range() {
    let text = svg(&over_depth(&["uring"]), &Key::default()).into_string();
    assert!(text.contains("uring at 32: 32,000 (28,800 to 41,600)"), "{text}");
    let text = svg(&rows(&["cp"]), &Key::default()).into_string();
    assert!(text.contains("cp: 2.00 (1.00 to 9.00 in 3 rounds)"), "{text}");
}

#[test]
fn rows_and_series_without_samples_are_not_drawn() {
    let empty = Row { label: "failed".into(), samples: Vec::new() };
    let plot = Plot::rows("Time", "s", vec![empty]);
    assert!(plot.is_empty());
    assert!(Plot::latencies("Latency", vec![Series::distribution("none".into(), &[])]).is_empty());
}

/// Converts `#rrggbb` to linear red, green and blue.
fn linear(color: &str) -> [f64; 3] {
    [1, 3, 5].map(|at| {
        let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    })
}

/// Returns the relative luminance, as WCAG defines it.
fn luminance([r, g, b]: [f64; 3]) -> f64 {
    0.2126 * r + 0.7152 * g + 0.0722 * b
}

/// Returns the colour of a variable on a light and on a dark page.
fn values(name: &str) -> [[f64; 3]; 2] {
    let start = format!("{name}: #");
    let found = STYLE.match_indices(&start).map(|(at, _)| at + start.len() - 1);
    let all: Vec<_> = found.map(|at| linear(&STYLE[at..at + 7])).collect();
    all.try_into().unwrap()
}

#[test]
fn every_colour_has_enough_contrast() {
    for (mode, paper) in values("--paper").map(luminance).into_iter().enumerate() {
        let contrast = |name: &str| {
            let own = luminance(values(name)[mode]);
            (own.max(paper) + 0.05) / (own.min(paper) + 0.05)
        };
        for color in 0..key::COLORS {
            assert!(contrast(&format!("--c{color}")) >= 3.0, "{color} in {mode}");
        }
        assert!(contrast("--soft") >= 4.5 && contrast("--ink") >= 7.0, "{mode}");
    }
}

/// The colours that a reader perceives with normal vision, without green cones, and without red
/// cones (Machado, Oliveira and Fernandes, 2009).
const EYES: [[[f64; 3]; 3]; 3] = [
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
];

fn times(matrix: [[f64; 3]; 3], color: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| row.iter().zip(color).map(|(a, b)| a * b).sum::<f64>().clamp(0.0, 1.0))
}

/// Converts to CIELAB, in which distances are about proportional to perceived differences.
fn lab(color: [f64; 3]) -> [f64; 3] {
    const XYZ: [[f64; 3]; 3] =
        [[0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0177, 0.1095, 0.8728]];
    let root = |t: f64| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
    let [x, y, z] = times(XYZ, color).map(root);
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

#[test]
fn colours_differ_for_colour_blind_readers() {
    const CLEAR: f64 = 25.0;
    let names: Vec<String> = (0..key::COLORS).map(|n| format!("--c{n}")).collect();
    for (mode, eye) in (0..2).flat_map(|mode| EYES.map(|eye| (mode, eye))) {
        let seen: Vec<_> = names.iter().map(|name| lab(times(eye, values(name)[mode]))).collect();
        for (n, one) in seen.iter().enumerate() {
            for (m, other) in seen[..n].iter().enumerate() {
                let squares = one.iter().zip(other).map(|(a, b)| (a - b).powi(2));
                let distance = squares.sum::<f64>().sqrt();
                assert!(distance > CLEAR, "{n} and {m} in {mode}: {distance:.1}");
            }
        }
    }
}
