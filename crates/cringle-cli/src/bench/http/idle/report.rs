//! The table, and the same for programs.

use super::{Findings, Row, Sample};
use crate::failure::Failure;
use crate::report::{self, json, table};
use crate::units::{count, figure};
use serde_json::{Value, json};
use std::path::Path;

const HEADER: [&str; 7] = [
    "server",
    "KiB each",
    "page tables",
    "kernel, both ends",
    "s to open all",
    "s to serve all again",
    "its CPU µs each",
];

const MEANING: &str = "KiB each: the server's resident memory for a connection that is idle, after its first \
    request. Its page tables, and the kernel's objects (the sockets of both ends, and what else the machine \
    did meanwhile), in KiB for each connection, come on top.";

pub(super) fn tell(findings: &Findings, json: Option<&Path>) -> Result<(), Failure> {
    if let Some(path) = json {
        report::save(path, &value(findings))?;
    }
    if report::is_stdout(json) { Ok(()) } else { report::print(&text(findings)) }
}

fn text(findings: &Findings) -> String {
    let (cell, rows) = (findings.cell, &findings.rows);
    let rounds = rows.first().map_or(0, |row| row.samples.len());
    let mut out = table::machine(&findings.machine);
    out.push_str(&format!(
        "\n{} connections that are kept and idle, then all served again; {} worker{}; medians of {rounds} \
         round{}\n{}\n",
        count(cell.connections as f64),
        cell.workers,
        if cell.workers == 1 { "" } else { "s" },
        if rounds == 1 { "" } else { "s" },
        table::figures(&HEADER, rows.iter().map(|row| cells(row, cell.connections)))
    ));
    out.push_str(&report::words::wrapped(MEANING, ""));
    for note in &findings.notes {
        out.push_str(&report::words::wrapped(note, "note: "));
    }
    out
}

impl Sample {
    /// Resident, page tables, the kernel's; in KiB.
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
        "schema": json::SCHEMA,
        "benchmark": "http-idle",
        "machine": findings.machine,
        "runs": findings.rows.iter().flat_map(runs).collect::<Vec<_>>(),
        "notes": findings.notes,
    })
}
