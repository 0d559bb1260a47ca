//! The report of `bench http`: tables, plots and JSON.

use super::args::HttpArgs;
use super::program::Program;
use super::{Block, Line, Sample, plot, sentences};
use crate::experiment::{self, Named, Notes, Report, words};
use cringle_report::machine::Machine;
use cringle_report::page::{Rows, Section, cell, ratio_cell};
use cringle_report::units::count;
use serde_json::{Value, json};

const HEADER: [&str; 11] = [
    "server",
    "requests/s",
    "lowest–highest",
    "CPU µs",
    "× uring",
    "p50 µs",
    "p99 µs",
    "p99.9 µs",
    "ctx/req",
    "calls/req",
    "errors",
];

pub(super) fn of(args: &HttpArgs, blocks: &[Block], machine: Machine, notes: Notes) -> Report {
    let response_bytes = args.target.is_none().then(|| args.response_bytes());
    let section = |block: &Block| Section {
        title: sentences::title(block, response_bytes),
        sentences: sentences::sentences(block),
        plots: vec![
            experiment::plot(
                "CPU time of the server per request",
                "µs",
                &block.lines,
                Sample::cpu_us,
            ),
            experiment::plot("Requests per second", "requests/s", &block.lines, Sample::rate),
            experiment::plot("99th percentile of the latency", "µs", &block.lines, |sample| {
                sample.p99_us
            }),
            plot::latencies("Latency of a request", block),
        ],
        table: Some(Rows::new(&HEADER, block.lines.iter().map(|line| cells(block, line)))),
        ..Section::default()
    };
    // If numbers of workers are compared, that comparison comes first.
    let by_workers = plot::by_workers(blocks).into_iter();
    let sections: Vec<Section> = by_workers.chain(blocks.iter().map(section)).collect();
    let lines =
        || blocks.iter().flat_map(|block| block.lines.iter().map(move |line| (block, line)));
    let command = |program: &Program| json!({ "server": program.name, "command": program.text() });
    let fields = json!({
        "client": args.client.name(),
        "response_bytes": response_bytes,
        "commands": args.commands.iter().map(command).collect::<Vec<_>>(),
        "runs": lines().flat_map(|(block, line)| runs(block, line)).collect::<Vec<_>>(),
        "medians": lines().map(|(block, line)| median(block, line)).collect::<Vec<_>>(),
        "words": words(&sections),
    });
    Report::new("http", "What a request costs, by server", machine, sections, notes, fields)
}

fn cells(block: &Block, line: &Line) -> Vec<String> {
    let rate = |sample: &Sample| sample.requests_per_second;
    let (lowest, highest) = line.range(rate);
    vec![
        line.subject.name(),
        count(line.figure(rate)),
        format!("{}–{}", count(lowest), count(highest)),
        cell(line.median(Sample::cpu_us)),
        ratio_cell(sentences::to_ring(block, line)),
        cell(line.median(|sample| sample.p50_us)),
        cell(line.median(|sample| sample.p99_us)),
        cell(line.median(|sample| sample.p999_us)),
        cell(line.median(Sample::context_switches)),
        cell(block.syscalls(line)),
        count(line.samples.iter().map(|sample| sample.errors as f64).sum()),
    ]
}

fn runs(block: &Block, line: &Line) -> Vec<Value> {
    let run = |sample: &Sample| {
        json!({
            "server": line.subject.name(),
            "workers": block.cell.workers,
            "connections": block.cell.connections,
            "keepalive": block.cell.keepalive,
            "requests": sample.requests,
            "requests_per_second": sample.requests_per_second,
            "cpu_us_per_request": sample.cpu_us(),
            "p50_us": sample.p50_us,
            "p99_us": sample.p99_us,
            "p999_us": sample.p999_us,
            "context_switches_per_request": sample.context_switches(),
            "load_busy": sample.load_busy,
            "load_cpu_us_per_request": sample.load_cpu_us_per_request,
            "errors": sample.errors,
        })
    };
    line.samples.iter().map(run).collect()
}

fn median(block: &Block, line: &Line) -> Value {
    json!({
        "server": line.subject.name(),
        "workers": block.cell.workers,
        "connections": block.cell.connections,
        "keepalive": block.cell.keepalive,
        "requests_per_second": line.figure(|sample| sample.requests_per_second),
        "cpu_us_per_request": line.median(Sample::cpu_us),
        "p50_us": line.median(|sample| sample.p50_us),
        "p99_us": line.median(|sample| sample.p99_us),
        "p999_us": line.median(|sample| sample.p999_us),
        "context_switches_per_request": line.median(Sample::context_switches),
        "syscalls_per_request": block.syscalls(line),
        "quantiles_us": line.latencies.to_json(),
        "ratios": { "cpu_to_uring": sentences::to_ring(block, line) },
    })
}
