//! The report of `bench batch`, in the form of blockio-uring's benchmark.

use super::{Comparison, Measured, json};
use cringle_report::failure::Failure;
use cringle_report::page::{Page, Rows, Section, wrapped};
use cringle_report::plot::{Axis, Plot, Row, Scale, Series};
use cringle_report::units::{figure, size};
use cringle_report::{Outputs, table};

pub(super) fn write(comparison: &Comparison, outputs: &Outputs) -> Result<(), Failure> {
    outputs.write_with_text(&json::of(comparison), &page(comparison), || text(comparison))
}

fn text(comparison: &Comparison) -> String {
    let mut out = table::machine(&comparison.machine);
    out.push_str(&format!("\n{} benchmark\n", comparison.title()));
    for (name, value) in std::iter::once(file(comparison)).chain(lines(comparison)) {
        out.push_str(&format!("{name:<17}{value}\n"));
    }
    for note in &comparison.notes {
        out.push_str(&wrapped(note, "note: "));
    }
    out
}

fn file(comparison: &Comparison) -> (&'static str, String) {
    ("File:", format!("{} ({})", comparison.file.display(), size(comparison.bytes)))
}

fn page(comparison: &Comparison) -> Page {
    let lines = std::iter::once(file(comparison)).chain(lines(comparison));
    let cells = lines.map(|(name, value)| vec![name.trim_end_matches(':').into(), value]);
    let section = Section {
        title: format!("{} benchmark", comparison.title()),
        sentences: sentence(comparison).into_iter().collect(),
        plots: vec![rates(comparison), latencies(comparison)],
        table: Some(Rows { text_columns: 2, ..Rows::new(&["", "median round"], cells) }),
        ..Section::default()
    };
    Page {
        bench: "bench batch".into(),
        title: "Batches of random 4 KiB reads".into(),
        machine: comparison.machine.clone(),
        sections: vec![section],
        notes: comparison.notes.clone(),
    }
}

fn sentence(comparison: &Comparison) -> Option<String> {
    let ratio = comparison.median().iops() / comparison.fio_iops()?;
    Some(format!("The median round has {ratio:.2} × the rate of fio."))
}

fn rates(comparison: &Comparison) -> Plot {
    let ours = comparison.rounds.iter().map(Measured::iops).collect();
    let mut rows = vec![
        Row { label: format!("cringle, {}", comparison.level_name()), samples: ours },
        Row { label: "fio".into(), samples: comparison.fio.clone() },
    ];
    rows.extend(comparison.via.as_ref().map(|via| Row {
        label: format!("cringle, by {}", via.via.name()),
        samples: via.rounds.iter().map(Measured::iops).collect(),
    }));
    Plot::rows_along("Reads per second", Axis::new("IOPS", Scale::Linear), rows)
}

fn latencies(comparison: &Comparison) -> Plot {
    let name = format!("cringle, {}", comparison.level_name());
    let curve = Series::distribution(name, &comparison.latencies.quantiles_us());
    Plot::latencies(format!("Latency of a {}", comparison.unit()), vec![curve])
}

/// Returns the figures of blockio-uring's benchmark, and some that it does not have.
fn lines(comparison: &Comparison) -> Vec<(&'static str, String)> {
    let measured = &comparison.median();
    let per_op = |value: f64| figure(value / measured.ops.max(1) as f64);
    let us =
        |value: Option<f64>| value.map_or_else(|| "–".into(), |us| format!("{} µs", figure(us)));
    let (allocations, bytes) =
        (measured.allocations.unwrap_or(0), measured.allocated_bytes.unwrap_or(0));
    let mut lines = vec![
        ("File caching:", yes(comparison.cached)),
        ("Workers:", comparison.workers.to_string()),
        ("Threads:", comparison.submitters.to_string()),
        ("Total I/O ops:", measured.ops.to_string()),
        ("Elapsed time:", format!("{:.6} s", measured.usage.seconds)),
        ("IOPS:", format!("{:.0}", measured.iops())),
        ("Allocations:", format!("{allocations} ({} per op)", per_op(allocations as f64))),
        ("Allocated total:", format!("{bytes} bytes")),
        ("Allocated per:", format!("{} bytes per op", per_op(bytes as f64))),
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
    lines.extend(via_lines(comparison));
    lines
}

/// Returns the figures of the other language beside those of Rust.
fn via_lines(comparison: &Comparison) -> Vec<(&'static str, String)> {
    let Some(via) = &comparison.via else { return Vec::new() };
    let number = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "–".into(), |value| format!("{value:.digits$}"))
    };
    vec![
        ("Via:", via.via.name().into()),
        ("Via IOPS:", number(via.iops(), 0)),
        ("Ratio to Rust:", number(via.ratio(&comparison.rounds), 3)),
        ("Via CPU time:", format!("{} µs per op", number(via.cpu_us_per_op(), 3))),
        ("CPU / Rust:", number(via.cpu_ratio(&comparison.rounds), 3)),
    ]
}

fn yes(value: bool) -> String {
    if value { "True" } else { "False" }.into()
}
