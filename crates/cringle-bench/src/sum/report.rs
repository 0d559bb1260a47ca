//! The report of `bench sum`: tables, sentences, plots and JSON.

use super::args::{Strategy, SumArgs};
use super::{BUFFER_BYTES, Line, Table};
use crate::experiment::{Named, Notes, Report, plot, words};
use cringle_report::machine::Machine;
use cringle_report::page::{Column, Rows, Section, ratio_cell};
use cringle_report::units::{count, figure, mib, size};
use serde_json::{Value, json};

pub(super) fn of(args: &SumArgs, machine: Machine, tables: &[Table], notes: Notes) -> Report {
    let section = |table: &Table| Section {
        title: title(table, args.message),
        sentences: sentence(table).into_iter().collect(),
        plots: vec![
            plot("Time for all bytes", "s", &table.lines, |one| one.usage.seconds),
            plot("CPU time for all bytes", "s", &table.lines, |one| one.usage.cpu_seconds()),
        ],
        table: Some(rows(table)),
    };
    let sections: Vec<Section> = tables.iter().map(section).collect();
    let lines = || Table::lines_of(tables);
    let fields = json!({
        "message_bytes": args.message,
        "runs": lines().flat_map(|(table, line)| runs(table, line)).collect::<Vec<_>>(),
        "medians": lines().map(|(table, line)| median(table, line)).collect::<Vec<_>>(),
        "words": words(&sections),
    });
    let title = "The cost of a runtime where it cannot win";
    Report::new("sum", title, machine, sections, notes, fields)
}

fn title(table: &Table, message_bytes: u64) -> String {
    let (total, read) = (size(table.case.bytes), size(BUFFER_BYTES as u64));
    let from = match table.case.cache {
        None => format!("TCP connection, sent {} at a time", size(message_bytes)),
        Some(cache) => format!("{} file", cache.name()),
    };
    format!("{total} from a {from}, read {read} at a time")
}

/// "fibers take 1.01 × the plain thread's time, with 3 context switches; tokio takes …"
fn sentence(table: &Table) -> Option<String> {
    let of = |line: &Line| {
        let ratio = table.to_sync(line)?;
        let switches = line.context_switches();
        let verb = if line.subject == Strategy::Fibers { "take" } else { "takes" };
        Some(format!(
            "{} {verb} {ratio:.2} × the plain thread's time, with {} context switch{}",
            line.subject.name(),
            count(switches),
            if switches == 1.0 { "" } else { "es" }
        ))
    };
    let others = table.lines.iter().filter(|line| line.subject != Strategy::Sync);
    let all: Vec<String> = others.filter_map(of).collect();
    (!all.is_empty()).then(|| format!("{}.", all.join("; ")))
}

fn rows(table: &Table) -> Rows {
    let range = |line: &Line| {
        let (fastest, slowest) = line.range(|sample| sample.usage.seconds);
        format!("{fastest:.3}–{slowest:.3}")
    };
    let columns: [Column<'_, Line>; 8] = [
        ("strategy", &|line| line.subject.name()),
        ("s", &|line| format!("{:.3}", line.seconds())),
        ("fastest–slowest", &range),
        ("× sync", &|line| ratio_cell(table.to_sync(line))),
        ("MiB/s", &|line| figure(mib(table.case.bytes as f64) / line.seconds())),
        ("user s", &|line| figure(line.figure(|sample| sample.usage.user_seconds))),
        ("system s", &|line| figure(line.figure(|sample| sample.usage.system_seconds))),
        ("ctx", &|line| count(line.context_switches())),
    ];
    Rows::of(&columns, &table.lines)
}

fn runs(table: &Table, line: &Line) -> Vec<Value> {
    let run = |sample: &super::SumSample| {
        json!({
            "strategy": line.subject.name(),
            "source": table.case.source(),
            "cache": table.case.cache.map(|cache| cache.name()),
            "bytes": table.case.bytes,
            "seconds": sample.usage.seconds,
            "user_s": sample.usage.user_seconds,
            "system_s": sample.usage.system_seconds,
            "context_switches": sample.usage.context_switches,
            "sum": sample.sum,
        })
    };
    line.samples.iter().map(run).collect()
}

fn median(table: &Table, line: &Line) -> Value {
    json!({
        "strategy": line.subject.name(),
        "source": table.case.source(),
        "cache": table.case.cache.map(|cache| cache.name()),
        "bytes": table.case.bytes,
        "seconds": line.seconds(),
        "context_switches": line.context_switches(),
        "ratios": { "seconds_to_sync": table.to_sync(line) },
    })
}
