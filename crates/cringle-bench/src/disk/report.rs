//! The report of `bench disk`: for each profile a table, sentences, and plots of rates, CPU time
//! and latencies over the queue depth.

use super::job::Profile;
use super::results::{Run, Sample};
use super::sentences::{self, Group};
use super::strategies::Strategy;
use super::{Findings, json, table};
use cringle_report::Outputs;
use cringle_report::failure::Failure;
use cringle_report::page::{Page, Section};
use cringle_report::plot::{Axis, Plot, Point, Row, Scale, Series, Stroke};
use cringle_report::units::counted;

type Figure = fn(&Sample) -> Option<f64>;

/// The number in flight whose latencies are shown, and not folded away.
const USUAL_DEPTH: usize = 32;

pub(super) fn write(findings: &Findings, outputs: &Outputs) -> Result<(), Failure> {
    outputs.write(&json::of(findings), &page(findings))
}

fn page(findings: &Findings) -> Page {
    let commits = findings.runs.iter().all(|run| run.cell.profile == Profile::Wal);
    let activity = if commits { "committing" } else { findings.direction.gerund() };
    Page {
        bench: "bench disk".into(),
        title: format!("Which way of {activity} wins here"),
        machine: findings.machine.clone(),
        sections: sentences::groups(findings).into_iter().map(section).collect(),
        notes: findings.notes.clone(),
    }
}

fn section(group: Group<'_>) -> Section {
    let runs = &group.runs;
    let depths = depths(runs);
    let rate = if group.runs.iter().any(|run| run.cell.profile == Profile::Wal) {
        ("Commits per second", "commits/s")
    } else {
        ("Operations per second", "IOPS")
    };
    let figures: [(&str, &str, Figure); 3] = [
        (rate.0, rate.1, |sample| Some(sample.iops())),
        ("CPU time per operation", "µs", |sample| Some(sample.cpu_us_per_op())),
        ("99th percentile of the latency", "µs", |sample| sample.p99_us),
    ];
    let draw = if has_several_depths(runs) { over_depth } else { as_rows };
    let mut plots: Vec<Plot> =
        figures.iter().map(|(title, unit, of)| draw(runs, (*title, *unit), *of)).collect();
    let usual = depths.iter().copied().min_by_key(|depth| depth.abs_diff(USUAL_DEPTH));
    let others = depths.iter().copied().filter(|depth| Some(*depth) != usual);
    let others: Vec<Plot> = others.map(|depth| latencies(runs, depth)).collect();
    plots.extend(usual.map(|depth| latencies(runs, depth)));
    Section {
        plots,
        more_plots: Some(("Latencies at other depths".into(), others)),
        table: Some(table::runs(runs)),
        title: group.title,
        sentences: group.sentences,
    }
}

/// Returns the numbers of operations in flight, in order.
fn depths(runs: &[&Run]) -> Vec<usize> {
    let mut depths: Vec<usize> = runs.iter().map(|run| run.cell.in_flight()).collect();
    depths.sort_unstable();
    depths.dedup();
    depths
}

fn values(run: &Run, of: Figure) -> Vec<f64> {
    run.samples.iter().filter_map(of).collect()
}

/// Whether any strategy was measured with several numbers of operations in flight.
fn has_several_depths(runs: &[&Run]) -> bool {
    let other = |run: &Run| {
        let like = |other: &&&Run| label(other, runs) == label(run, runs);
        runs.iter().filter(like).any(|other| other.cell.in_flight() != run.cell.in_flight())
    };
    runs.iter().any(|run| other(run))
}

/// Plots a single number in flight.
fn as_rows(runs: &[&Run], (title, unit): (&str, &str), of: Figure) -> Plot {
    let row = |run: &&Run| Row { label: label(run, runs), samples: values(run, of) };
    Plot::rows(title, unit, runs.iter().map(row).collect())
}

fn over_depth(runs: &[&Run], (title, unit): (&str, &str), of: Figure) -> Plot {
    let all = runs.iter().flat_map(|run| values(run, of));
    let y = Axis::fitting(unit, all);
    let mut series: Vec<Series> = Vec::new();
    for run in runs {
        let point = Point::of(run.cell.in_flight() as f64, &values(run, of));
        let label = label(run, runs);
        match series.iter_mut().find(|one| one.label == label) {
            Some(one) => one.points.extend(point),
            None => series.push(Series {
                label,
                name: run.cell.label(),
                stroke: stroke(run),
                points: point.into_iter().collect(),
            }),
        }
    }
    Plot::lines(title, Axis::new("in flight", Scale::Doubling), y, series)
}

/// Returns the label of a line. A strategy with a queue has a line for each number of threads.
fn label(run: &Run, runs: &[&Run]) -> String {
    let (label, threads) = (run.cell.label(), run.cell.threads);
    let several = runs
        .iter()
        .any(|other| other.cell.strategy == run.cell.strategy && other.cell.threads != threads);
    if run.cell.strategy.has_queue() && several {
        format!("{label}, {}", counted(threads, "thread"))
    } else {
        label
    }
}

fn stroke(run: &Run) -> Stroke {
    match (run.cell.strategy, run.cell.threads) {
        (Strategy::Fio, _) => Stroke::Dashed,
        (strategy, 2..) if strategy.has_queue() => Stroke::Dotted,
        _ => Stroke::Solid,
    }
}

/// Plots the latencies of all runs with this number in flight: distributions, and of fio the two
/// quantiles that it reports.
fn latencies(runs: &[&Run], depth: usize) -> Plot {
    let at_depth = runs.iter().filter(|run| run.cell.in_flight() == depth);
    let series = at_depth.map(|run| {
        let own = run.latencies.quantiles_us();
        let reported = [(0.5, run.p50_us()), (0.99, run.p99_us())];
        let reported = reported.into_iter().filter_map(|(share, us)| Some((share, us?)));
        let (quantiles, stroke) =
            if own.is_empty() { (reported.collect(), Stroke::None) } else { (own, stroke(run)) };
        let series = Series::distribution(run.cell.label(), &quantiles);
        Series { label: label(run, runs), stroke, ..series }
    });
    Plot::latencies(format!("Latency with {depth} in flight"), series.collect())
}
