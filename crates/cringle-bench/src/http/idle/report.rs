//! The report of `bench http --idle`: the table, plots and JSON.

use super::{Findings, Row, Sample};
use cringle_report::failure::Failure;
use cringle_report::page::{Page, Rows, Section};
use cringle_report::plot::{self, Plot};
use cringle_report::units::{count, counted, figure};
use cringle_report::{Outputs, SCHEMA};
use serde_json::{Value, json};

const HEADER: [&str; 7] = [
    "server",
    "KiB each",
    "page tables",
    "kernel, both ends",
    "s to open all",
    "s to serve all again",
    "its CPU µs each",
];

const MEANING: &str = "KiB each: the server's resident memory for an idle connection, after its \
    first request. In addition, for each connection: the page tables, and the kernel's objects \
    (the sockets of both ends, and those of all other programs).";

pub(super) fn write(findings: &Findings, outputs: &Outputs) -> Result<(), Failure> {
    outputs.write(&value(findings), &page(findings))
}

fn page(findings: &Findings) -> Page {
    let connections = findings.cell.connections;
    let rows = findings.rows.iter().map(|row| cells(row, connections));
    let section = Section {
        title: title(findings),
        sentences: vec![MEANING.into()],
        plots: vec![
            plot(findings, "Memory of an idle connection", "KiB", |one, all| one.each(all)[0]),
            plot(findings, "Time until all are served again", "s", |one, _| one.served_seconds),
        ],
        table: Some(Rows::new(&HEADER, rows)),
        ..Section::default()
    };
    Page {
        bench: "bench http --idle".into(),
        title: "What an idle connection costs".into(),
        machine: findings.machine.clone(),
        sections: vec![section],
        notes: findings.notes.clone(),
    }
}

fn title(findings: &Findings) -> String {
    let (cell, rows) = (findings.cell, &findings.rows);
    let rounds = rows.first().map_or(0, |row| row.samples.len());
    format!(
        "{} idle connections, then all served again; {}; medians of {}",
        count(cell.connections as f64),
        counted(cell.workers, "worker"),
        counted(rounds, "round"),
    )
}

fn plot(findings: &Findings, title: &str, unit: &str, of: fn(&Sample, usize) -> f64) -> Plot {
    let connections = findings.cell.connections;
    let samples = |row: &Row| row.samples.iter().map(|one| of(one, connections)).collect();
    let drawn = |row: &Row| plot::Row { label: row.subject.label(), samples: samples(row) };
    Plot::rows(title, unit, findings.rows.iter().map(drawn).collect())
}

impl Sample {
    /// Returns the resident memory, page tables and kernel objects for each connection, in KiB.
    fn each(&self, connections: usize) -> [f64; 3] {
        let more = self.idle.since(self.before);
        [more.resident, more.tables, more.slab].map(|bytes| bytes / 1024.0 / connections as f64)
    }
}

fn cells(row: &Row, connections: usize) -> Vec<String> {
    let each = |n: usize| figure(row.median(|sample| sample.each(connections)[n]));
    vec![
        row.subject.label(),
        each(0),
        each(1),
        each(2),
        figure(row.median(|sample| sample.opened_seconds)),
        figure(row.median(|sample| sample.served_seconds)),
        figure(row.median(|sample| sample.served_cpu_seconds) * 1e6 / connections as f64),
    ]
}

fn value(findings: &Findings) -> Value {
    let cell = findings.cell;
    let runs = |row: &Row| {
        let label = row.subject.label();
        let run = |sample: &Sample| {
            let [resident, tables, kernel] = sample.each(cell.connections);
            json!({
                "server": label,
                "workers": cell.workers,
                "connections": cell.connections,
                "resident_kib_each": resident,
                "page_tables_kib_each": tables,
                "kernel_both_ends_kib_each": kernel,
                "opened_seconds": sample.opened_seconds,
                "served_again_seconds": sample.served_seconds,
                "served_again_cpu_seconds": sample.served_cpu_seconds,
            })
        };
        row.samples.iter().map(run).collect::<Vec<_>>()
    };
    json!({
        "schema": SCHEMA,
        "benchmark": "http-idle",
        "machine": findings.machine,
        "runs": findings.rows.iter().flat_map(runs).collect::<Vec<_>>(),
        "notes": findings.notes,
    })
}
