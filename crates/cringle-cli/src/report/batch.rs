//! What `bench batch` tells: in the form of blockio-uring's benchmark, so that outputs can be laid side by
//! side.

use super::page::{Page, Rows, Section};
use super::plot::{Axis, Plot, Row, Scale, Series};
use super::{Outputs, json, table, words};
use crate::bench::batch::{Comparison, Measured};
use crate::failure::Failure;
use crate::units::size;

pub(crate) fn batch(comparison: &Comparison, outputs: &Outputs) -> Result<(), Failure> {
    outputs.tell_as(&json::batch(comparison), &page(comparison), || text(comparison))
}

fn text(comparison: &Comparison) -> String {
    let mut out = table::machine(&comparison.machine);
    out.push_str(&format!("\n{} benchmark\n", comparison.title()));
    for (name, value) in std::iter::once(file(comparison)).chain(table::batch_lines(comparison)) {
        out.push_str(&format!("{name:<17}{value}\n"));
    }
    for note in &comparison.notes {
        out.push_str(&words::wrapped(note, "note: "));
    }
    out
}

fn file(comparison: &Comparison) -> (&'static str, String) {
    ("File:", format!("{} ({})", comparison.file.display(), size(comparison.bytes)))
}

fn page(comparison: &Comparison) -> Page {
    let lines = std::iter::once(file(comparison)).chain(table::batch_lines(comparison));
    let cells = lines.map(|(name, value)| vec![name.trim_end_matches(':').into(), value]);
    let section = Section {
        title: format!("{} benchmark", comparison.title()),
        sentences: sentence(comparison).into_iter().collect(),
        plots: vec![rates(comparison), latencies(comparison)],
        table: Some(Rows { words: 2, ..Rows::new(&["", "median round"], cells) }),
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
    Some(format!("The median round has {ratio:.2} × the rate of fio's."))
}

fn rates(comparison: &Comparison) -> Plot {
    let ours = comparison.rounds.iter().map(Measured::iops).collect();
    let rows = vec![
        Row { label: format!("cringle, {}", comparison.level_name()), samples: ours },
        Row { label: "fio".into(), samples: comparison.fio.clone() },
    ];
    Plot::rows("Reads a second", Axis::new("IOPS", Scale::Linear), rows)
}

fn latencies(comparison: &Comparison) -> Plot {
    let name = format!("cringle, {}", comparison.level_name());
    let curve = Series::distribution(name, &comparison.latencies.quantiles_us());
    Plot::latencies(format!("Latency of a {}", comparison.unit()), vec![curve])
}
