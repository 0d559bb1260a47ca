//! Drawings: the distribution of latencies, and rates by the number of workers.

use super::args::Cell;
use super::{Block, Line};
use crate::failure::Failure;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::ops::Range;
use std::path::Path;

const SIZE: (u32, u32) = (960, 600);

/// Those of Okabe and Ito, which most people can tell apart; yellow on white nobody could.
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(140, 140, 140),
];

type Points = Vec<(f64, f64)>;

/// A file for each table, and more where there are several numbers of workers.
pub(super) fn all(blocks: &[Block], directory: &Path) -> Result<(), Failure> {
    for block in blocks {
        let title = format!("Latency: {}, {}", words(&block.cell), workers(block.cell.workers));
        let of = |line: &Line| (line.label(), distribution(line));
        let name = format!("latency-{}-workers-{}", name(&block.cell), block.cell.workers);
        latencies(&directory.join(name + ".svg"), &title, block.lines.iter().map(of).collect())?;
    }
    for (cell, same) in by_load(blocks).into_iter().filter(|(_, same)| same.len() > 1) {
        let path = directory.join(format!("workers-{}.svg", name(&cell)));
        rates(&path, &format!("Requests a second: {}", words(&cell)), &same)?;
        for label in labels(&same) {
            let of = |block: &&Block| {
                let line = block.lines.iter().find(|line| line.label() == label)?;
                Some((workers(block.cell.workers), distribution(line)))
            };
            let file = format!("latency-{}-{}.svg", name(&cell), label.replace(' ', "-"));
            let title = format!("Latency of {label}: {}", words(&cell));
            latencies(&directory.join(file), &title, same.iter().filter_map(of).collect())?;
        }
    }
    Ok(())
}

fn name(cell: &Cell) -> String {
    let manner = if cell.keepalive { "keepalive" } else { "closing" };
    format!("{manner}-{}", cell.connections)
}

fn words(cell: &Cell) -> String {
    let manner = if cell.keepalive { "used again" } else { "one request each" };
    format!("{} connections, {manner}", cell.connections)
}

fn workers(count: usize) -> String {
    if count == 1 { "1 worker".into() } else { format!("{count} workers") }
}

/// Blocks that differ in their workers alone.
fn by_load(blocks: &[Block]) -> Vec<(Cell, Vec<&Block>)> {
    let mut all: Vec<(Cell, Vec<&Block>)> = Vec::new();
    for block in blocks {
        let like = |cell: &Cell| Cell { workers: block.cell.workers, ..*cell } == block.cell;
        match all.iter_mut().find(|(cell, _)| like(cell)) {
            Some((_, same)) => same.push(block),
            None => all.push((block.cell, vec![block])),
        }
    }
    all
}

fn labels(blocks: &[&Block]) -> Vec<String> {
    let mut labels = Vec::new();
    for line in blocks.iter().flat_map(|block| &block.lines) {
        if !labels.contains(&line.label()) {
            labels.push(line.label());
        }
    }
    labels
}

/// Of each share of the requests, within how many microseconds they were answered.
fn distribution(line: &Line) -> Points {
    let at = |step: u32| {
        let share = f64::from(step) / 1000.0;
        Some((line.latencies.quantile_us(share)?, share * 100.0))
    };
    (0..=999).filter_map(at).collect()
}

/// Latencies lie far apart: their axis is logarithmic.
fn latencies(path: &Path, title: &str, mut curves: Vec<(String, Points)>) -> Result<(), Failure> {
    for (_, points) in &mut curves {
        points.iter_mut().for_each(|point| point.0 = point.0.log10());
    }
    let times = || curves.iter().flat_map(|(_, points)| points.iter().map(|point| point.0));
    let (first, last) =
        (times().fold(f64::INFINITY, f64::min), times().fold(f64::NEG_INFINITY, f64::max));
    let x = match first.is_finite() {
        true => first - 0.05..last + 0.05,
        false => 0.0..1.0,
    };
    let axes = Axes {
        names: ["latency in µs, logarithmic", "requests answered within it, %"],
        x_ticks: round_logarithms(&x),
        x,
        y: 0.0..100.0,
        x_label: |x| crate::units::count(10f64.powf(*x)),
    };
    draw(path, title, &axes, &curves)
}

/// Of 1, 2, 5, 10, 20, 50 and so on; over many decades of their beginnings alone.
fn round_logarithms(range: &Range<f64>) -> Vec<f64> {
    let steps: &[f64] = if range.end - range.start > 3.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let decades = range.start.floor() as i32..=range.end.ceil() as i32;
    let ticks = decades.flat_map(|ten| steps.iter().map(move |step| f64::from(ten) + step.log10()));
    ticks.filter(|tick| range.contains(tick)).collect()
}

fn rates(path: &Path, title: &str, blocks: &[&Block]) -> Result<(), Failure> {
    let curve = |label: String| {
        let point = |block: &&Block| {
            let line = block.lines.iter().find(|line| line.label() == label)?;
            Some((block.cell.workers as f64, line.rate()))
        };
        (label.clone(), blocks.iter().filter_map(point).collect::<Points>())
    };
    let curves: Vec<_> = labels(blocks).into_iter().map(curve).collect();
    let points = || curves.iter().flat_map(|(_, points)| points);
    let most = points().map(|point| point.0).fold(2.0, f64::max);
    let axes = Axes {
        names: ["workers", "requests per second"],
        x_ticks: blocks.iter().map(|block| block.cell.workers as f64).collect(),
        x: 1.0 - most / 50.0..most * 1.02,
        y: 0.0..points().map(|point| point.1 * 1.05).fold(1.0, f64::max),
        x_label: |x| crate::units::count(*x),
    };
    draw(path, title, &axes, &curves)
}

struct Axes {
    names: [&'static str; 2],
    x: Range<f64>,
    x_ticks: Vec<f64>,
    y: Range<f64>,
    x_label: fn(&f64) -> String,
}

/// An axis with these ticks and no others.
struct Ticked {
    inner: RangedCoordf64,
    ticks: Vec<f64>,
}

impl Ranged for Ticked {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.inner.map(value, limit)
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        match hint.weight() {
            plotters::coord::ranged1d::KeyPointWeight::Bold => self.ticks.clone(),
            plotters::coord::ranged1d::KeyPointWeight::Any => Vec::new(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.inner.range()
    }
}

impl ValueFormatter<f64> for Ticked {}

fn draw(path: &Path, title: &str, axes: &Axes, curves: &[(String, Points)]) -> Result<(), Failure> {
    try_draw(path, title, axes, curves)
        .map_err(|error| Failure::failed(format!("cannot draw {}: {error}", path.display())))
}

fn try_draw(
    path: &Path,
    title: &str,
    axes: &Axes,
    curves: &[(String, Points)],
) -> Result<(), Box<dyn std::error::Error>> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let widest = curves.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
        let (area_of_chart, legend) = area.split_horizontally(SIZE.0 - 60 - 9 * widest as u32);
        let x = Ticked { inner: axes.x.clone().into(), ticks: axes.x_ticks.clone() };
        let mut chart = ChartBuilder::on(&area_of_chart)
            .caption(title, ("sans-serif", 20))
            .margin(16)
            .x_label_area_size(52)
            .y_label_area_size(84)
            .build_cartesian_2d(x, axes.y.clone())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .x_desc(axes.names[0])
            .y_desc(axes.names[1])
            .x_label_formatter(&axes.x_label)
            .y_label_formatter(&|y| crate::units::count(*y))
            .draw()?;
        for (n, (label, points)) in curves.iter().enumerate() {
            let color = COLORS[n % COLORS.len()];
            chart.draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?;
            // A few points are measured ones; what has one point only has no line.
            if points.len() <= axes.x_ticks.len() {
                let dot = |&point| Circle::new(point, 4, color.filled());
                chart.draw_series(points.iter().map(dot))?;
            }
            let y = 60 + 22 * n as i32;
            legend.draw(&PathElement::new([(4, y), (28, y)], color.stroke_width(3)))?;
            legend.draw(&Text::new(label.as_str(), (36, y - 7), ("sans-serif", 14)))?;
        }
        area.present()?;
    }
    std::fs::write(path, text)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::args::{Cell, Server, Variant};
    use super::super::{Sample, Subject};
    use super::*;

    fn line(server: Server, workers: usize) -> Line {
        let mut line = Line::new(Subject::Ours(Variant { server, changed: None }));
        line.latencies.record((1..5000).map(|n| n * 1000 / workers as u64));
        line.samples.push(Sample {
            requests: 1,
            errors: 0,
            requests_per_second: 1e5 * workers as f64,
            used: None,
            load: None,
            p50_us: None,
            p99_us: None,
            p999_us: None,
        });
        line
    }

    fn blocks() -> Vec<Block> {
        let servers = |workers| match workers {
            1 => &[Server::Epoll, Server::TokioMt, Server::Fibers][..],
            _ => &[Server::TokioMt, Server::Fibers],
        };
        let block = |workers: usize| Block {
            cell: Cell { workers, connections: 50, keepalive: true },
            lines: servers(workers).iter().map(|&server| line(server, workers)).collect(),
        };
        [1, 2, 8].map(block).into()
    }

    #[test]
    fn a_drawing_is_xml_and_nothing_lies_outside() {
        let place = tempfile::tempdir().unwrap();
        all(&blocks(), place.path()).unwrap();
        let files: Vec<_> = std::fs::read_dir(place.path()).unwrap().map(Result::unwrap).collect();
        // A table's latencies each, rates by workers, and each server's latencies by workers.
        assert_eq!(files.len(), 3 + 1 + 3);
        for file in files {
            let text = std::fs::read_to_string(file.path()).unwrap();
            let document = roxmltree::Document::parse(&text).unwrap();
            let number = |node: roxmltree::Node<'_, '_>, name: &str| {
                node.attribute(name).unwrap().parse::<f64>().unwrap()
            };
            let texts = document.descendants().filter(|node| node.has_tag_name("text"));
            let mut said = Vec::new();
            for node in texts {
                let letters = node.text().unwrap().trim();
                let half = 4.5 * letters.chars().count() as f64;
                let (x, y) = (number(node, "x"), number(node, "y"));
                let turned = node.attribute("transform").is_some();
                let (left, right) = match node.attribute("text-anchor") {
                    _ if turned => (0.0, 0.0),
                    Some("middle") => (half, half),
                    Some("end") => (2.0 * half, 0.0),
                    _ => (0.0, 2.0 * half),
                };
                let inside = x - left >= 0.0 && x + right <= f64::from(SIZE.0);
                assert!(inside && (0.0..f64::from(SIZE.1)).contains(&y), "{letters} at {x}, {y}");
                said.push(letters.to_owned());
            }
            assert!(said.iter().any(|one| one.contains("50 connections")), "{said:?}");
            assert!(
                said.iter().any(|one| one.contains("µs") || one.contains("second")),
                "{said:?}"
            );
        }
    }

    #[test]
    fn ticks_are_round() {
        let values = |range| {
            let ticks = round_logarithms(&range).into_iter();
            ticks.map(|tick| 10f64.powf(tick).round() as u64).collect::<Vec<_>>()
        };
        assert_eq!(values(1.2..2.8), [20, 50, 100, 200, 500]);
        assert_eq!(values(0.0..4.1), [1, 10, 100, 1000, 10000]);
    }
}
