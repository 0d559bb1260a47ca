//! Plots of the rounds, of the latencies, and of both by the number of workers.

use super::args::HttpCase;
use super::{HttpSample, Line, Table};
use crate::experiment::Named;
use crate::rounds;
use cringle_report::page::Section;
use cringle_report::plot::{Axis, Plot, Point, Scale, Series, Stroke};

type Figure = fn(&HttpSample) -> f64;

pub(super) fn latencies(title: &str, table: &Table) -> Plot {
    let of =
        |line: &Line| Series::distribution(line.subject.name(), &line.latencies.quantiles_us());
    Plot::latencies(title, table.lines.iter().map(of).collect())
}

/// Returns a section for each load that was measured with several numbers of workers.
pub(super) fn by_workers(tables: &[Table]) -> Vec<Section> {
    let section = |(case, same): (HttpCase, Vec<&Table>)| Section {
        title: format!("By workers: {}", describe(&case)),
        plots: vec![
            over_workers("Requests per second", "requests/s", &same, |sample| {
                sample.requests_per_second
            }),
            over_workers("CPU time of the server per request", "µs", &same, HttpSample::cpu_us),
        ],
        ..Section::default()
    };
    several(tables).into_iter().map(section).collect()
}

fn over_workers(title: &str, unit: &str, tables: &[&Table], of: Figure) -> Plot {
    let curve = |label: String| {
        let point = |table: &&Table| {
            let line = table.lines.iter().find(|line| line.subject.name() == label)?;
            Point::of(table.case.workers as f64, &line.values(of))
        };
        let points = tables.iter().filter_map(point).collect();
        Series { name: label.clone(), label, stroke: Stroke::Solid, points }
    };
    let y = Axis::fitting(
        unit,
        tables.iter().flat_map(|table| &table.lines).flat_map(|line| line.values(of)),
    );
    let series = labels(tables).into_iter().map(curve).collect();
    Plot::lines(title, Axis::new("workers", Scale::Doubling), y, series)
}

/// Describes the load in a title.
fn describe(case: &HttpCase) -> String {
    let kind = if case.keepalive { "reused" } else { "one request each" };
    format!("{} connections, {kind}", case.connections)
}

/// Groups the tables that differ in their workers only, and returns the groups with several
/// members.
fn several(tables: &[Table]) -> Vec<(HttpCase, Vec<&Table>)> {
    let mut all: Vec<(HttpCase, Vec<&Table>)> = Vec::new();
    for table in tables {
        let like =
            |case: &HttpCase| HttpCase { workers: table.case.workers, ..*case } == table.case;
        match all.iter_mut().find(|(case, _)| like(case)) {
            Some((_, same)) => same.push(table),
            None => all.push((table.case, vec![table])),
        }
    }
    all.retain(|(_, same)| same.len() > 1);
    all
}

fn labels(tables: &[&Table]) -> Vec<String> {
    rounds::distinct(tables.iter().flat_map(|table| &table.lines).map(|line| line.subject.name()))
}

#[cfg(test)]
mod tests {
    use super::super::args::{HttpCase, Server, Variant};
    use super::super::{HttpSample, Subject};
    use super::*;

    fn line(server: Server, workers: usize) -> Line {
        let mut line = Line::new(Subject::Ours(Variant { server, changed: None }));
        line.latencies.record((1..5000).map(|n| n * 1000 / workers as u64));
        line.samples.push(HttpSample {
            requests_per_second: 1e5 * workers as f64,
            ..HttpSample::default()
        });
        line
    }

    fn tables() -> Vec<Table> {
        let servers = |workers| match workers {
            1 => &[Server::Epoll, Server::TokioMt, Server::Fibers][..],
            _ => &[Server::TokioMt, Server::Fibers],
        };
        let table = |workers: usize| Table {
            case: HttpCase { workers, connections: 50, keepalive: true },
            lines: servers(workers).iter().map(|&server| line(server, workers)).collect(),
        };
        [1, 2, 8].map(table).into()
    }

    #[test]
    fn one_number_of_workers_gives_no_section() {
        assert!(by_workers(&tables()[..1]).is_empty());
        let sections = by_workers(&tables());
        assert_eq!(sections.len(), 1);
        let names = sections[0].plots[0].names();
        assert_eq!(names, ["epoll", "tokio-mt", "fibers"]);
    }
}
