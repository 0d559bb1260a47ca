//! Tables.

use super::colored;
use super::page::Rows;
use crate::bench::batch::Comparison;
use crate::bench::job::Profile;
use crate::bench::results::{Run, beside};
use crate::bench::strategies::Strategy;
use crate::machine::Machine;
use crate::units::{count, figure, mib};
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};

pub(crate) fn machine(machine: &Machine) -> String {
    let model = machine.cpu_model.as_deref().map(|name| format!(" × {name}")).unwrap_or_default();
    let memory =
        machine.memory_bytes.map(|bytes| format!(", {:.0} GiB", mib(bytes as f64) / 1024.0));
    format!(
        "Linux {}, {} cpu{}{model}{}\n{} on {}\n",
        machine.kernel,
        machine.cpus,
        if machine.cpus == 1 { "" } else { "s" },
        memory.unwrap_or_default(),
        machine.filesystem,
        machine.device
    )
}

/// One row for each run.
pub(super) fn runs(runs: &[&Run]) -> Rows {
    let wal = runs.iter().any(|run| run.cell.profile == Profile::Wal);
    let rate = if wal { "commits/s" } else { "IOPS" };
    let header = [
        "strategy",
        "threads",
        "QD",
        rate,
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
    let or_dash = |value: Option<f64>| value.map_or_else(|| "–".into(), figure);
    vec![
        run.cell.label(),
        run.cell.threads.to_string(),
        run.cell.queue_depth.to_string(),
        count(run.iops()),
        figure(mib(run.bytes_per_second())),
        sync.map_or_else(|| "–".into(), |sync| format!("{:.2}", run.iops() / sync)),
        figure(run.cpu_us_per_op()),
        format!("{:.3}", run.context_switches_per_op()),
        or_dash(run.p50_us()),
        or_dash(run.p99_us()),
    ]
}

fn plain(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().enumerate().map(|(column, name)| {
        let cell = Cell::new(name);
        let cell = if colored() { cell.add_attribute(Attribute::Bold) } else { cell };
        if column == 0 { cell } else { cell.set_alignment(CellAlignment::Right) }
    }));
    if colored() {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table
}

/// Words on the left, figures on the right, and the best in green where there are colours.
pub(crate) fn rows(rows: &Rows) -> String {
    let header: Vec<&str> = rows.header.iter().map(String::as_str).collect();
    let mut table = plain(&header);
    for (number, row) in rows.rows.iter().enumerate() {
        let best = colored() && rows.best == Some(number);
        table.add_row(row.iter().enumerate().map(|(column, text)| {
            let cell = Cell::new(text);
            let cell = if best && column > 0 { cell.fg(Color::Green) } else { cell };
            match column < rows.words {
                true => cell,
                false => cell.set_alignment(CellAlignment::Right),
            }
        }));
    }
    format!("{}\n", table.trim_fmt())
}

/// The figures of blockio-uring's benchmark, and what it does not tell.
pub(super) fn batch_lines(comparison: &Comparison) -> Vec<(&'static str, String)> {
    let measured = &comparison.median();
    let per_op = |value: f64| figure(value / measured.ops.max(1) as f64);
    let us =
        |value: Option<f64>| value.map_or_else(|| "–".into(), |us| format!("{} µs", figure(us)));
    let mut lines = vec![
        ("File caching:", yes(comparison.cached)),
        ("Workers:", comparison.workers.to_string()),
        ("Threads:", comparison.submitters.to_string()),
        ("Total I/O ops:", measured.ops.to_string()),
        ("Elapsed time:", format!("{:.6} s", measured.usage.seconds)),
        ("IOPS:", format!("{:.0}", measured.iops())),
        (
            "Allocations:",
            format!(
                "{} ({} per op)",
                measured.allocated.allocations,
                per_op(measured.allocated.allocations as f64)
            ),
        ),
        ("Allocated total:", format!("{} bytes", measured.allocated.bytes)),
        ("Allocated per:", format!("{} bytes per op", per_op(measured.allocated.bytes as f64))),
        (
            "User time:",
            format!(
                "{:.3} s ({} µs per op)",
                measured.usage.user_seconds,
                per_op(measured.usage.user_seconds * 1e6)
            ),
        ),
        (
            "System time:",
            format!(
                "{:.3} s ({} µs per op)",
                measured.usage.system_seconds,
                per_op(measured.usage.system_seconds * 1e6)
            ),
        ),
        ("p99.9 latency:", format!("{} of a {}", us(measured.p999_us), comparison.unit())),
        ("Longest:", us(measured.max_us)),
    ];
    if let Some(fio) = comparison.fio_iops() {
        lines.push(("fio IOPS:", format!("{fio:.0}")));
        lines.push(("Ratio to fio:", format!("{:.3}", measured.iops() / fio)));
    }
    lines
}

fn yes(value: bool) -> String {
    if value { "True" } else { "False" }.into()
}
