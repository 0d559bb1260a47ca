//! The report of `bench http`: tables, sentences, plots and JSON.

use super::args::{HttpArgs, Server};
use super::program::Program;
use super::{HttpSample, Line, Table, plot};
use crate::experiment::{self, Named, Notes, Report, words};
use cringle_report::machine::Machine;
use cringle_report::page::{Column, Rows, Section, cell, ratio_cell};
use cringle_report::units::{count, counted, figure};
use serde_json::{Value, json};

/// A load that keeps this part of its processors busy is saturated.
const BUSY: f64 = 0.95;

pub(super) fn of(args: &HttpArgs, tables: &[Table], machine: Machine, notes: Notes) -> Report {
    let response_bytes = args.response_bytes();
    let section = |table: &Table| Section {
        title: title(table, response_bytes),
        sentences: sentences(table),
        plots: vec![
            experiment::plot(
                "CPU time of the server per request",
                "µs",
                &table.lines,
                HttpSample::cpu_us,
            ),
            experiment::plot("Requests per second", "requests/s", &table.lines, |sample| {
                sample.requests_per_second
            }),
            experiment::plot("99th percentile of the latency", "µs", &table.lines, |sample| {
                sample.p99_us
            }),
            plot::latencies("Latency of a request", table),
        ],
        table: Some(rows(table)),
    };
    // If numbers of workers are compared, that comparison comes first.
    let by_workers = plot::by_workers(tables).into_iter();
    let sections: Vec<Section> = by_workers.chain(tables.iter().map(section)).collect();
    let lines = || Table::lines_of(tables);
    let command = |program: &Program| json!({ "server": program.name, "command": program.text() });
    let fields = json!({
        "response_bytes": response_bytes,
        "commands": args.commands.iter().map(command).collect::<Vec<_>>(),
        "runs": lines().flat_map(|(table, line)| runs(table, line)).collect::<Vec<_>>(),
        "medians": lines().map(|(table, line)| median(table, line)).collect::<Vec<_>>(),
        "words": words(&sections),
    });
    Report::new("http", "What a request costs, by server", machine, sections, notes, fields)
}

fn title(table: &Table, response_bytes: usize) -> String {
    let case = table.case;
    let kind = if case.keepalive { "that are reused" } else { "at a time, one request each" };
    let rounds = table.lines.first().map_or(0, |line| line.samples.len());
    format!(
        "{} connections {kind}; {}, {response_bytes} bytes per page; medians of {}",
        count(case.connections as f64),
        counted(case.workers, "worker"),
        counted(rounds, "round")
    )
}

fn sentences(table: &Table) -> Vec<String> {
    [against_ring(table), limit(table)].into_iter().flatten().collect()
}

/// Returns the CPU time of a request as a multiple of that with the bare ring.
fn to_ring(table: &Table, line: &Line) -> Option<f64> {
    let ring = table.line(Server::Uring)?;
    Some(line.figure(HttpSample::cpu_us) / ring.figure(HttpSample::cpu_us))
}

/// "A request takes 5.1 µs of the server's CPU time with the bare ring; 1.04 × with fibers, …"
fn against_ring(table: &Table) -> Option<String> {
    let others = table.lines.iter().filter(|line| !line.subject.is(Server::Uring));
    let mut ratios: Vec<(f64, String)> =
        others.filter_map(|line| Some((to_ring(table, line)?, line.subject.name()))).collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ring = table.line(Server::Uring)?.figure(HttpSample::cpu_us);
    let all: Vec<String> =
        ratios.iter().map(|(ratio, label)| format!("{ratio:.2} × with {label}")).collect();
    (!all.is_empty()).then(|| {
        format!(
            "A request takes {} µs of the server's CPU time with the bare ring; {}.",
            figure(ring),
            all.join(", ")
        )
    })
}

/// Warns that the load is the limit, so that the rates do not compare the servers.
fn limit(table: &Table) -> Option<String> {
    let saturated = |line: &&Line| line.figure(|sample| sample.load_busy) > BUSY;
    let all: Vec<String> =
        table.lines.iter().filter(saturated).map(|line| line.subject.name()).collect();
    (!all.is_empty()).then(|| {
        format!(
            "With {} the load kept its processors busy all the time: the rate is that of the \
             load, and the server could do more. Compare the CPU time per request instead.",
            all.join(", ")
        )
    })
}

fn rows(table: &Table) -> Rows {
    let rate = |sample: &HttpSample| sample.requests_per_second;
    let range = |line: &Line| {
        let (lowest, highest) = line.range(rate);
        format!("{}–{}", count(lowest), count(highest))
    };
    let errors = |line: &Line| line.samples.iter().map(|sample| sample.errors as f64).sum();
    let columns: [Column<'_, Line>; 10] = [
        ("server", &|line| line.subject.name()),
        ("requests/s", &|line| count(line.figure(rate))),
        ("lowest–highest", &range),
        ("CPU µs", &|line| figure(line.figure(HttpSample::cpu_us))),
        ("× uring", &|line| ratio_cell(to_ring(table, line))),
        ("p50 µs", &|line| cell(line.median(|sample| sample.p50_us))),
        ("p99 µs", &|line| cell(line.median(|sample| sample.p99_us))),
        ("p99.9 µs", &|line| cell(line.median(|sample| sample.p999_us))),
        ("ctx/req", &|line| figure(line.figure(HttpSample::context_switches))),
        ("errors", &|line| count(errors(line))),
    ];
    Rows::of(&columns, &table.lines)
}

fn runs(table: &Table, line: &Line) -> Vec<Value> {
    let run = |sample: &HttpSample| {
        json!({
            "server": line.subject.name(),
            "workers": table.case.workers,
            "connections": table.case.connections,
            "keepalive": table.case.keepalive,
            "requests": sample.requests,
            "requests_per_second": sample.requests_per_second,
            "cpu_us_per_request": sample.cpu_us(),
            "p50_us": sample.p50_us,
            "p99_us": sample.p99_us,
            "p999_us": sample.p999_us,
            "context_switches_per_request": sample.context_switches(),
            "load_busy": sample.load_busy,
            "load_cpu_us_per_request": sample.load_cpu_us(),
            "errors": sample.errors,
        })
    };
    line.samples.iter().map(run).collect()
}

fn median(table: &Table, line: &Line) -> Value {
    json!({
        "server": line.subject.name(),
        "workers": table.case.workers,
        "connections": table.case.connections,
        "keepalive": table.case.keepalive,
        "requests_per_second": line.figure(|sample| sample.requests_per_second),
        "cpu_us_per_request": line.median(HttpSample::cpu_us),
        "p50_us": line.median(|sample| sample.p50_us),
        "p99_us": line.median(|sample| sample.p99_us),
        "p999_us": line.median(|sample| sample.p999_us),
        "context_switches_per_request": line.median(HttpSample::context_switches),
        "quantiles_us": line.latencies.to_json(),
        "ratios": { "cpu_to_uring": to_ring(table, line) },
    })
}
