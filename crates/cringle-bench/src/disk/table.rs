//! The table of `bench disk`.

use super::job::Profile;
use super::results::{Run, beside};
use super::strategies::Strategy;
use cringle_report::page::{Rows, cell, ratio_cell};
use cringle_report::units::{count, figure, mib};

/// Returns the table, with a row for each run.
pub(super) fn runs(runs: &[&Run]) -> Rows {
    let wal = runs.iter().any(|run| run.cell.profile == Profile::Wal);
    let rate = if wal { "commits/s" } else { "IOPS" };
    let header = [
        "strategy",
        "threads",
        "QD",
        rate,
        "spread",
        "MiB/s",
        "× sync",
        "CPU µs/op",
        "ctx/op",
        "p50 µs",
        "p99 µs",
    ];
    let all: Vec<Run> = runs.iter().map(|run| (*run).clone()).collect();
    let best = (0..all.len()).max_by(|a, b| all[*a].iops().total_cmp(&all[*b].iops()));
    Rows { best, ..Rows::new(&header, all.iter().map(|run| row(run, &all))) }
}

fn row(run: &Run, all: &[Run]) -> Vec<String> {
    let sync = beside(all, &run.cell, Strategy::Sync).map(Run::iops);
    vec![
        run.cell.label(),
        run.cell.threads.to_string(),
        run.cell.queue_depth.to_string(),
        count(run.iops()),
        run.spread().map_or_else(|| "-".into(), |part| format!("{:.0} %", part * 100.0)),
        figure(mib(run.bytes_per_second())),
        ratio_cell(sync.map(|sync| run.iops() / sync)),
        figure(run.cpu_us_per_op()),
        format!("{:.3}", run.context_switches_per_op()),
        cell(run.p50_us()),
        cell(run.p99_us()),
    ]
}
