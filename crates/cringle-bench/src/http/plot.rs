//! Plots of the rounds, of the latencies, and of both by the number of workers.

use super::args::Cell;
use super::{Block, Line, Sample};
use crate::experiment::Named;
use crate::rounds;
use cringle_report::page::Section;
use cringle_report::plot::{Axis, Plot, Point, Scale, Series, Stroke};

type Figure = fn(&Sample) -> f64;

pub(super) fn latencies(title: &str, block: &Block) -> Plot {
    let of =
        |line: &Line| Series::distribution(line.subject.name(), &line.latencies.quantiles_us());
    Plot::latencies(title, block.lines.iter().map(of).collect())
}

/// Returns a section for each load that was measured with several numbers of workers.
pub(super) fn by_workers(blocks: &[Block]) -> Vec<Section> {
    let section = |(cell, same): (Cell, Vec<&Block>)| Section {
        title: format!("By workers: {}", describe(&cell)),
        plots: vec![
            over_workers("Requests per second", "requests/s", &same, |sample| {
                sample.requests_per_second
            }),
            over_workers("CPU time of the server per request", "µs", &same, Sample::cpu_us),
        ],
        ..Section::default()
    };
    several(blocks).into_iter().map(section).collect()
}

fn over_workers(title: &str, unit: &str, blocks: &[&Block], of: Figure) -> Plot {
    let curve = |label: String| {
        let point = |block: &&Block| {
            let line = block.lines.iter().find(|line| line.subject.name() == label)?;
            Point::of(block.cell.workers as f64, &line.values(of))
        };
        let points = blocks.iter().filter_map(point).collect();
        Series { name: label.clone(), label, stroke: Stroke::Solid, points }
    };
    let y = Axis::fitting(
        unit,
        blocks.iter().flat_map(|block| &block.lines).flat_map(|line| line.values(of)),
    );
    let series = labels(blocks).into_iter().map(curve).collect();
    Plot::lines(title, Axis::new("workers", Scale::Doubling), y, series)
}

/// Describes the load in a title.
fn describe(cell: &Cell) -> String {
    let kind = if cell.keepalive { "reused" } else { "one request each" };
    format!("{} connections, {kind}", cell.connections)
}

/// Groups the blocks that differ in their workers only, and returns the groups with several
/// members.
fn several(blocks: &[Block]) -> Vec<(Cell, Vec<&Block>)> {
    let mut all: Vec<(Cell, Vec<&Block>)> = Vec::new();
    for block in blocks {
        let like = |cell: &Cell| Cell { workers: block.cell.workers, ..*cell } == block.cell;
        match all.iter_mut().find(|(cell, _)| like(cell)) {
            Some((_, same)) => same.push(block),
            None => all.push((block.cell, vec![block])),
        }
    }
    all.retain(|(_, same)| same.len() > 1);
    all
}

fn labels(blocks: &[&Block]) -> Vec<String> {
    rounds::distinct(blocks.iter().flat_map(|block| &block.lines).map(|line| line.subject.name()))
}

#[cfg(test)]
mod tests {
    use super::super::args::{Cell, Server, Variant};
    use super::super::{Sample, Subject};
    use super::*;

    fn line(server: Server, workers: usize) -> Line {
        let mut line = Line::new(Subject::Ours(Variant { server, changed: None }));
        line.latencies.record((1..5000).map(|n| n * 1000 / workers as u64));
        line.samples
            .push(Sample { requests_per_second: 1e5 * workers as f64, ..Sample::default() });
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
    fn one_number_of_workers_gives_no_section() {
        assert!(by_workers(&blocks()[..1]).is_empty());
        let sections = by_workers(&blocks());
        assert_eq!(sections.len(), 1);
        let names = sections[0].plots[0].names();
        assert_eq!(names, ["epoll", "tokio-mt", "fibers"]);
    }
}
