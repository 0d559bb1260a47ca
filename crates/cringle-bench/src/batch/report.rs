//! The report of `bench batch`, in the form of blockio-uring's benchmark.

use super::args::Level;
use super::{Comparison, Measured};
use crate::experiment::{Line, Named, Notes, Report};
use cringle_report::machine::Machine;
use cringle_report::page::{Rows, Section, wrapped};
use cringle_report::plot::{Plot, Row, Series};
use cringle_report::table;
use cringle_report::units::{figure, size};
use serde_json::{Value, json};

pub(super) fn of(comparison: &Comparison<'_>, machine: Machine, notes: Notes) -> Report {
    let (api, unit) = match comparison.args.level {
        Level::Low => ("Low", "read"),
        Level::High => ("High", "batch"),
    };
    let title = format!("{api}-level API benchmark");
    let lines = lines(comparison, unit);
    let mut text = format!("{}\n{title}\n", table::machine(&machine));
    for (name, value) in &lines {
        text.push_str(&format!("{name:<17}{value}\n"));
    }
    for note in &notes.0 {
        text.push_str(&wrapped(note, "note: "));
    }
    let cells = lines.into_iter();
    let cells = cells.map(|(name, value)| vec![name.trim_end_matches(':').into(), value]);
    let ratio = comparison.fio_iops().map(|fio| comparison.median().iops() / fio);
    let section = Section {
        title,
        sentences: ratio
            .map(|ratio| format!("The median round has {ratio:.2} × the rate of fio."))
            .into_iter()
            .collect(),
        plots: vec![rates(comparison), latencies(comparison, unit)],
        table: Some(Rows { text_columns: 2, ..Rows::new(&["", "median round"], cells) }),
    };
    let (title, fields) = ("Batches of random 4 KiB reads", fields(comparison));
    let report = Report::new("batch", title, machine, vec![section], notes, fields);
    Report { text: Some(text), ..report }
}

fn rates(comparison: &Comparison<'_>) -> Plot {
    let row = |line: &super::Line| Row {
        label: line.subject.name(),
        samples: line.values(Measured::iops),
    };
    let fio = Row { label: "fio".into(), samples: comparison.fio.clone() };
    let via = comparison.via.iter().map(|(_, line)| row(line));
    let rows = [row(&comparison.rust), fio].into_iter().chain(via).collect();
    Plot::rows("Reads per second", "IOPS", rows)
}

fn latencies(comparison: &Comparison<'_>, unit: &str) -> Plot {
    let Line { subject, latencies, .. } = &comparison.rust;
    let curve = Series::distribution(subject.name(), &latencies.quantiles_us());
    Plot::latencies(format!("Latency of a {unit}"), vec![curve])
}

/// Returns the figures of blockio-uring's benchmark, and some that it does not have.
fn lines(comparison: &Comparison<'_>, unit: &str) -> Vec<(&'static str, String)> {
    let (args, measured) = (comparison.args, comparison.median());
    let per_op = |value: f64| figure(value / measured.ops.max(1) as f64);
    let time = |seconds: f64| format!("{seconds:.3} s ({} µs per op)", per_op(seconds * 1e6));
    let us =
        |value: Option<f64>| value.map_or_else(|| "–".into(), |us| format!("{} µs", figure(us)));
    let (allocations, bytes) =
        (measured.allocations.unwrap_or(0), measured.allocated_bytes.unwrap_or(0));
    let mut lines = vec![
        ("File:", format!("{} ({})", args.file.display(), size(comparison.bytes))),
        ("File caching:", if args.cached { "True" } else { "False" }.into()),
        ("Workers:", args.workers.to_string()),
        ("Threads:", comparison.submitters().to_string()),
        ("Total I/O ops:", measured.ops.to_string()),
        ("Elapsed time:", format!("{:.6} s", measured.usage.seconds)),
        ("IOPS:", format!("{:.0}", measured.iops())),
        ("Allocations:", format!("{allocations} ({} per op)", per_op(allocations as f64))),
        ("Allocated total:", format!("{bytes} bytes")),
        ("Allocated per:", format!("{} bytes per op", per_op(bytes as f64))),
        ("User time:", time(measured.usage.user_seconds)),
        ("System time:", time(measured.usage.system_seconds)),
        ("p99.9 latency:", format!("{} of a {unit}", us(measured.p999_us))),
        ("Longest:", us(measured.max_us)),
    ];
    if let Some(fio) = comparison.fio_iops() {
        lines.push(("fio IOPS:", format!("{fio:.0}")));
        lines.push(("Ratio to fio:", format!("{:.3}", measured.iops() / fio)));
    }
    lines.extend(via_lines(comparison));
    lines
}

/// Returns the figures of the other language beside those of Rust.
fn via_lines(comparison: &Comparison<'_>) -> Vec<(&'static str, String)> {
    let Some((via, line)) = &comparison.via else { return Vec::new() };
    let number = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "–".into(), |value| format!("{value:.digits$}"))
    };
    vec![
        ("Via:", via.name()),
        ("Via IOPS:", number(line.median(Measured::iops), 0)),
        ("Ratio to Rust:", number(comparison.via_ratio(Measured::iops), 3)),
        ("Via CPU time:", format!("{} µs per op", number(line.median(Measured::cpu_us_per_op), 3))),
        ("CPU / Rust:", number(comparison.via_ratio(Measured::cpu_us_per_op), 3)),
    ]
}

fn fields(comparison: &Comparison<'_>) -> Value {
    let (args, measured) = (comparison.args, comparison.median());
    let fio = comparison.fio_iops();
    let samples = |line: &super::Line| line.samples.iter().map(sample).collect::<Vec<_>>();
    json!({
        "level": args.level.name(),
        "file_bytes": comparison.bytes,
        "cached": args.cached,
        "warm": args.warm,
        "workers": args.workers,
        "submitters": comparison.submitters(),
        "result": sample(measured),
        "quantiles_us": comparison.rust.latencies.to_json(),
        "fio_iops": fio,
        "ratios": {
            "iops_to_fio": fio.map(|fio| measured.iops() / fio),
            "via_iops_to_rust": comparison.via_ratio(Measured::iops),
            "via_cpu_per_op_to_rust": comparison.via_ratio(Measured::cpu_us_per_op),
        },
        "samples": samples(&comparison.rust),
        "fio_samples": comparison.fio,
        "via": comparison.via.as_ref().map(|(via, line)| json!({
            "name": via.name(),
            "samples": samples(line),
        })),
    })
}

/// What a program of `--via` does not report is null.
fn sample(measured: &Measured) -> Value {
    let per_op = |value: Option<u64>| Some(value? as f64 / measured.ops.max(1) as f64);
    json!({
        "ops": measured.ops,
        "seconds": measured.usage.seconds,
        "iops": measured.iops(),
        "allocations": measured.allocations,
        "allocations_per_op": per_op(measured.allocations),
        "allocated_bytes": measured.allocated_bytes,
        "allocated_bytes_per_op": per_op(measured.allocated_bytes),
        "user_seconds": measured.usage.user_seconds,
        "system_seconds": measured.usage.system_seconds,
        "context_switches": measured.usage.context_switches,
        "p999_us": measured.p999_us,
        "max_us": measured.max_us,
    })
}
