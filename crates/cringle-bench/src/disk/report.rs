//! The report of `bench disk`: for each profile a table, sentences, and plots of rates, CPU time
//! and latencies over the queue depth; and the JSON.

use super::job::Profile;
use super::plan::Direction;
use super::results::{DiskSample, Run, beside};
use super::strategies::Strategy;
use super::{DiskFindings, sentences};
use crate::experiment::{Named, Report, words};
use cringle_report::page::{Column, Rows, Section, cell, ratio_cell};
use cringle_report::plot::{Axis, Plot, Point, Row, Scale, Series, Stroke};
use cringle_report::units::{count, counted, figure, mib};
use serde_json::{Value, json};

type Figure = fn(&DiskSample) -> Option<f64>;

/// The distribution of the latencies is shown for the number in flight that is nearest to this.
const USUAL_DEPTH: usize = 32;

pub(super) fn of(findings: DiskFindings) -> Report {
    let DiskFindings { machine, direction, runs, notes, load } = findings;
    let is_wal = |run: &Run| run.subject.profile == Profile::Wal;
    let activity = if runs.iter().all(is_wal) { "committing" } else { direction.gerund() };
    // Each profile is measured once, with all its settings.
    let profiles = runs.chunk_by(|a, b| a.subject.profile == b.subject.profile);
    let sections: Vec<Section> = profiles.map(|runs| section(runs, direction)).collect();
    let fields = json!({
        "rw": direction.name(),
        "load_average": load,
        "runs": runs.iter().map(|run| run_json(run, &runs)).collect::<Vec<_>>(),
        "words": words(&sections),
    });
    let title = format!("Which way of {activity} wins here");
    Report::new("disk", title, machine, sections, notes, fields)
}

/// Returns the section of a profile.
fn section(runs: &[Run], direction: Direction) -> Section {
    let depths = depths(runs);
    let rate = if runs.iter().any(|run| run.subject.profile == Profile::Wal) {
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
    plots.extend(usual.map(|depth| latencies(runs, depth)));
    Section {
        plots,
        table: Some(table(runs, rate.1)),
        title: sentences::title(runs, direction),
        sentences: sentences::sentences(runs, direction),
    }
}

/// Returns the numbers of operations in flight, in order.
fn depths(runs: &[Run]) -> Vec<usize> {
    let mut depths: Vec<usize> = runs.iter().map(|run| run.subject.in_flight()).collect();
    depths.sort_unstable();
    depths.dedup();
    depths
}

/// Whether any strategy was measured with several numbers of operations in flight.
fn has_several_depths(runs: &[Run]) -> bool {
    let other = |run: &Run| {
        let like = |other: &&Run| label(other, runs) == label(run, runs);
        runs.iter().filter(like).any(|other| other.subject.in_flight() != run.subject.in_flight())
    };
    runs.iter().any(other)
}

/// Plots a single number in flight.
fn as_rows(runs: &[Run], (title, unit): (&str, &str), of: Figure) -> Plot {
    let row = |run: &Run| Row { label: label(run, runs), samples: run.values(of) };
    Plot::rows(title, unit, runs.iter().map(row).collect())
}

fn over_depth(runs: &[Run], (title, unit): (&str, &str), of: Figure) -> Plot {
    let all = runs.iter().flat_map(|run| run.values(of));
    let y = Axis::fitting(unit, all);
    let mut series: Vec<Series> = Vec::new();
    for run in runs {
        let point = Point::of(run.subject.in_flight() as f64, &run.values(of));
        let label = label(run, runs);
        match series.iter_mut().find(|one| one.label == label) {
            Some(one) => one.points.extend(point),
            None => series.push(Series {
                label,
                name: run.subject.label(),
                stroke: stroke(run),
                points: point.into_iter().collect(),
            }),
        }
    }
    Plot::lines(title, Axis::new("in flight", Scale::Doubling), y, series)
}

/// Returns the label of a line. A strategy with a queue has a line for each number of threads.
fn label(run: &Run, runs: &[Run]) -> String {
    let (label, threads) = (run.subject.label(), run.subject.threads);
    let several = runs.iter().any(|other| {
        other.subject.strategy == run.subject.strategy && other.subject.threads != threads
    });
    if run.subject.strategy.has_queue() && several {
        format!("{label}, {}", counted(threads, "thread"))
    } else {
        label
    }
}

fn stroke(run: &Run) -> Stroke {
    match (run.subject.strategy, run.subject.threads) {
        (Strategy::Fio, _) => Stroke::Dashed,
        (strategy, 2..) if strategy.has_queue() => Stroke::Dotted,
        _ => Stroke::Solid,
    }
}

/// Plots the distributions of the latencies of all runs with this number in flight. fio reports
/// none.
fn latencies(runs: &[Run], depth: usize) -> Plot {
    let at_depth = runs.iter().filter(|run| run.subject.in_flight() == depth);
    let series = at_depth.map(|run| {
        let series = Series::distribution(run.subject.label(), &run.latencies.quantiles_us());
        Series { label: label(run, runs), stroke: stroke(run), ..series }
    });
    Plot::latencies(format!("Latency with {depth} in flight"), series.collect())
}

/// Returns the table, with a row for each run.
fn table(runs: &[Run], rate: &str) -> Rows {
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    let to_sync = |run: &Run| Some(run.iops() / beside(runs, &run.subject, Strategy::Sync)?.iops());
    let columns: [Column<'_, Run>; 11] = [
        ("strategy", &|run| run.subject.label()),
        ("threads", &|run| run.subject.threads.to_string()),
        ("QD", &|run| run.subject.queue_depth.to_string()),
        (rate, &|run| count(run.iops())),
        ("spread", &|run| run.spread().map_or_else(|| "-".into(), percent)),
        ("MiB/s", &|run| figure(mib(run.bytes_per_second()))),
        ("× sync", &|run| ratio_cell(to_sync(run))),
        ("CPU µs/op", &|run| figure(run.cpu_us_per_op())),
        ("ctx/op", &|run| format!("{:.3}", run.context_switches_per_op())),
        ("p50 µs", &|run| cell(run.p50_us())),
        ("p99 µs", &|run| cell(run.p99_us())),
    ];
    let best = (0..runs.len()).max_by(|a, b| runs[*a].iops().total_cmp(&runs[*b].iops()));
    Rows { best, ..Rows::of(&columns, runs) }
}

fn run_json(run: &Run, all: &[Run]) -> Value {
    let ratio = |strategy| Some(run.iops() / beside(all, &run.subject, strategy)?.iops());
    let ring = beside(all, &run.subject, Strategy::Uring);
    json!({
        "strategy": run.subject.strategy.name(),
        "profile": run.subject.profile.name(),
        "queue_depth": run.subject.queue_depth,
        "threads": run.subject.threads,
        "block_bytes": run.subject.block,
        "fixed": run.subject.fixed,
        "ops": run.ops() as u64,
        "seconds": run.seconds(),
        "iops": run.iops(),
        "spread": run.spread(),
        "bytes_per_second": run.bytes_per_second(),
        "cpu_us_per_op": run.cpu_us_per_op(),
        "context_switches_per_op": run.context_switches_per_op(),
        "p50_us": run.p50_us(),
        "p99_us": run.p99_us(),
        "quantiles_us": run.latencies.to_json(),
        "checksum": run.checksum().map(hex),
        "ratios": {
            "iops_to_sync": ratio(Strategy::Sync),
            "iops_to_uring": ratio(Strategy::Uring),
            "iops_to_fio": ratio(Strategy::Fio),
            "cpu_to_uring": ring.map(|ring| run.cpu_us_per_op() / ring.cpu_us_per_op()),
        },
        "samples": run.samples.iter().map(sample_json).collect::<Vec<_>>(),
    })
}

fn sample_json(sample: &DiskSample) -> Value {
    json!({
        "ops": sample.ops,
        "seconds": sample.usage.seconds,
        "iops": sample.iops(),
        "user_seconds": sample.usage.user_seconds,
        "system_seconds": sample.usage.system_seconds,
        "cpu_us_per_op": sample.cpu_us_per_op(),
        "context_switches_per_op": sample.context_switches_per_op(),
        "p50_us": sample.p50_us,
        "p99_us": sample.p99_us,
        "checksum": sample.checksum.map(hex),
    })
}

/// Formats a checksum as text, because most JSON parsers lose the low bits of a 64-bit number.
fn hex(checksum: u64) -> String {
    format!("{checksum:016x}")
}
