//! The report of `bench http --idle`: the table, plots and JSON.

use super::{IdleSample, Line};
use crate::experiment::{Named, Notes, Report, plot};
use crate::http::args::HttpCase;
use cringle_report::machine::Machine;
use cringle_report::page::{Column, Rows, Section};
use cringle_report::units::{count, counted, figure};
use serde_json::{Value, json};

const MEANING: &str = "KiB each: the server's resident memory for an idle connection, after its \
    first request. In addition, for each connection: the page tables, and the kernel's objects \
    (the sockets of both ends, and those of all other programs).";

pub(super) fn of(case: HttpCase, lines: &[Line], machine: Machine, notes: Notes) -> Report {
    let connections = case.connections;
    let (kib, served) = ("Memory of an idle connection", "Time until all are served again");
    let section = Section {
        title: format!(
            "{} idle connections, then all served again; {}; medians of {}",
            count(connections as f64),
            counted(case.workers, "worker"),
            counted(lines.first().map_or(0, |line| line.samples.len()), "round"),
        ),
        sentences: vec![MEANING.into()],
        plots: vec![
            plot(kib, "KiB", lines, |sample| sample.each(connections)[0]),
            plot(served, "s", lines, |sample| sample.served_seconds),
        ],
        table: Some(table(lines, connections)),
    };
    let runs = lines.iter().flat_map(|line| runs(case, line)).collect::<Vec<_>>();
    let (title, fields) = ("What an idle connection costs", json!({ "runs": runs }));
    Report::new("http --idle", title, machine, vec![section], notes, fields)
}

impl IdleSample {
    /// Returns the resident memory, page tables and kernel objects for each connection, in KiB.
    fn each(&self, connections: usize) -> [f64; 3] {
        let more = self.idle.since(self.before);
        [more.resident, more.tables, more.slab].map(|bytes| bytes / 1024.0 / connections as f64)
    }
}

fn table(lines: &[Line], connections: usize) -> Rows {
    let memory = |line: &Line, n: usize| figure(line.figure(|sample| sample.each(connections)[n]));
    let cpu = |sample: &IdleSample| sample.served_cpu_seconds * 1e6 / connections as f64;
    let columns: [Column<'_, Line>; 7] = [
        ("server", &|line| line.subject.name()),
        ("KiB each", &|line| memory(line, 0)),
        ("page tables", &|line| memory(line, 1)),
        ("kernel, both ends", &|line| memory(line, 2)),
        ("s to open all", &|line| figure(line.figure(|sample| sample.opened_seconds))),
        ("s to serve all again", &|line| figure(line.figure(|sample| sample.served_seconds))),
        ("its CPU µs each", &|line| figure(line.figure(cpu))),
    ];
    Rows::of(&columns, lines)
}

fn runs(case: HttpCase, line: &Line) -> Vec<Value> {
    let run = |sample: &IdleSample| {
        let [resident, tables, kernel] = sample.each(case.connections);
        json!({
            "server": line.subject.name(),
            "workers": case.workers,
            "connections": case.connections,
            "resident_kib_each": resident,
            "page_tables_kib_each": tables,
            "kernel_both_ends_kib_each": kernel,
            "opened_seconds": sample.opened_seconds,
            "served_again_seconds": sample.served_seconds,
            "served_again_cpu_seconds": sample.served_cpu_seconds,
        })
    };
    line.samples.iter().map(run).collect()
}
