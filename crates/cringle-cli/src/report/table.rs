//! Tables.

use super::colored;
use crate::bench::batch::Comparison;
use crate::bench::job::Profile;
use crate::bench::results::{Run, beside};
use crate::bench::strategies::Strategy;
use crate::machine::Machine;
use crate::units::{count, figure, mib, size};
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
pub(super) fn runs(runs: &[&Run]) -> String {
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
    let mut table = plain(&header);
    let all: Vec<Run> = runs.iter().map(|run| (*run).clone()).collect();
    let best = runs.iter().map(|run| run.iops()).fold(0.0, f64::max);
    for run in runs {
        let cells = row(run, &all).into_iter().enumerate().map(|(column, text)| {
            let cell = Cell::new(text);
            match column {
                0 => cell,
                _ if colored() && run.iops() == best => {
                    cell.fg(Color::Green).set_alignment(CellAlignment::Right)
                }
                _ => cell.set_alignment(CellAlignment::Right),
            }
        });
        table.add_row(cells);
    }
    format!("{}\n", table.trim_fmt())
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

pub(crate) fn plain(header: &[&str]) -> Table {
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

/// Rows of a name and figures.
pub(crate) fn figures(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = plain(header);
    for row in rows {
        table.add_row(row.into_iter().enumerate().map(|(column, text)| {
            let cell = Cell::new(text);
            if column == 0 { cell } else { cell.set_alignment(CellAlignment::Right) }
        }));
    }
    format!("{}\n", table.trim_fmt())
}

/// The header and the figures of blockio-uring's benchmark, and what it does not tell.
pub(super) fn batch(comparison: &Comparison) -> String {
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
    let mut out = machine(&comparison.machine);
    out.push_str(&format!("\n{} benchmark\n", comparison.title()));
    out.push_str(&format!(
        "File:            {} ({})\n",
        comparison.file.display(),
        size(comparison.bytes)
    ));
    for (name, value) in lines {
        out.push_str(&format!("{name:<17}{value}\n"));
    }
    for note in &comparison.notes {
        out.push_str(&super::words::wrapped(note, "note: "));
    }
    out
}

fn yes(value: bool) -> String {
    if value { "True" } else { "False" }.into()
}
