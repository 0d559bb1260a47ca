//! Drawings: the distribution of latencies, and rates by the number of workers.

use super::args::Cell;
use super::{Block, Line};
use crate::failure::Failure;
use plotters::prelude::*;
use std::ops::Range;
use std::path::Path;

const SIZE: (u32, u32) = (960, 600);

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
    let first = times().fold(f64::INFINITY, f64::min);
    let last = times().fold(first + 0.1, f64::max);
    let axes = Axes {
        names: ["µs until the answer", "% of the requests"],
        x: first..last,
        y: 0.0..100.0,
        x_label: |x| crate::units::figure(10f64.powf(*x)),
    };
    draw(path, title, &axes, &curves)
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
    let axes = Axes {
        names: ["workers", "requests/s"],
        x: 1.0..points().map(|point| point.0).fold(2.0, f64::max),
        y: 0.0..points().map(|point| point.1 * 1.05).fold(1.0, f64::max),
        x_label: |x| crate::units::count(*x),
    };
    draw(path, title, &axes, &curves)
}

struct Axes {
    names: [&'static str; 2],
    x: Range<f64>,
    y: Range<f64>,
    x_label: fn(&f64) -> String,
}

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
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(16)
            .x_label_area_size(44)
            .y_label_area_size(80)
            .build_cartesian_2d(axes.x.clone(), axes.y.clone())?;
        chart
            .configure_mesh()
            .x_desc(axes.names[0])
            .y_desc(axes.names[1])
            .x_label_formatter(&axes.x_label)
            .y_label_formatter(&|y| crate::units::count(*y))
            .draw()?;
        for (n, (label, points)) in curves.iter().enumerate() {
            let color = Palette99::pick(n).stroke_width(2);
            chart
                .draw_series(LineSeries::new(points.iter().copied(), color))?
                .label(label)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
        area.present()?;
    }
    std::fs::write(path, text)?;
    Ok(())
}
