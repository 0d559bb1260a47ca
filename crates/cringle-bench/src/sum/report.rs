//! The report of `bench sum`: tables, sentences, plots and JSON.

use super::args::{Strategy, SumArgs};
use super::{BUFFER_BYTES, Block, Kind, Line};
use crate::experiment::{Named, Notes, Report, plot, words};
use cringle_report::machine::Machine;
use cringle_report::page::{Column, Rows, Section, ratio_cell};
use cringle_report::units::{count, figure, mib, size};
use serde_json::{Value, json};

pub(super) fn of(args: &SumArgs, machine: Machine, blocks: &[Block], notes: Notes) -> Report {
    let section = |block: &Block| Section {
        title: title(block, args.message),
        sentences: sentence(block).into_iter().collect(),
        plots: vec![
            plot("Time for all bytes", "s", &block.lines, |one| one.usage.seconds),
            plot("CPU time for all bytes", "s", &block.lines, |one| one.usage.cpu_seconds()),
        ],
        table: Some(table(block)),
    };
    let sections: Vec<Section> = blocks.iter().map(section).collect();
    let lines =
        || blocks.iter().flat_map(|block| block.lines.iter().map(move |line| (block, line)));
    let fields = json!({
        "message_bytes": args.message,
        "runs": lines().flat_map(|(block, line)| runs(block, line)).collect::<Vec<_>>(),
        "medians": lines().map(|(block, line)| median(block, line)).collect::<Vec<_>>(),
        "words": words(&sections),
    });
    let title = "The cost of a runtime where it cannot win";
    Report::new("sum", title, machine, sections, notes, fields)
}

fn title(block: &Block, message_bytes: u64) -> String {
    let (total, read) = (size(block.cell.bytes), size(BUFFER_BYTES as u64));
    let message = size(message_bytes);
    match (block.cell.kind, block.cell.cache) {
        (Kind::Tcp, _) => format!(
            "{total} from a TCP connection, sent {message} at a time, read {read} at a time"
        ),
        (Kind::File, cache) => {
            let cache = cache.map_or_else(String::new, |cache| cache.name());
            format!("{total} from a {cache} file, read {read} at a time")
        }
    }
}

/// "fibers take 1.01 × the plain thread's time, with 3 context switches; tokio takes …"
fn sentence(block: &Block) -> Option<String> {
    let of = |line: &Line| {
        let ratio = block.to_sync(line)?;
        let switches = line.context_switches();
        let verb = if line.subject == Strategy::Fibers { "take" } else { "takes" };
        Some(format!(
            "{} {verb} {ratio:.2} × the plain thread's time, with {} context switch{}",
            line.subject.name(),
            count(switches),
            if switches == 1.0 { "" } else { "es" }
        ))
    };
    let others = block.lines.iter().filter(|line| line.subject != Strategy::Sync);
    let all: Vec<String> = others.filter_map(of).collect();
    (!all.is_empty()).then(|| format!("{}.", all.join("; ")))
}

fn table(block: &Block) -> Rows {
    let range = |line: &Line| {
        let (fastest, slowest) = line.range(|sample| sample.usage.seconds);
        format!("{fastest:.3}–{slowest:.3}")
    };
    let columns: [Column<'_, Line>; 8] = [
        ("strategy", &|line| line.subject.name()),
        ("s", &|line| format!("{:.3}", line.seconds())),
        ("fastest–slowest", &range),
        ("× sync", &|line| ratio_cell(block.to_sync(line))),
        ("MiB/s", &|line| figure(mib(block.cell.bytes as f64) / line.seconds())),
        ("user s", &|line| figure(line.figure(|sample| sample.usage.user_seconds))),
        ("system s", &|line| figure(line.figure(|sample| sample.usage.system_seconds))),
        ("ctx", &|line| count(line.context_switches())),
    ];
    Rows::of(&columns, &block.lines)
}

fn runs(block: &Block, line: &Line) -> Vec<Value> {
    let run = |sample: &super::Sample| {
        json!({
            "strategy": line.subject.name(),
            "source": block.cell.kind.name(),
            "cache": block.cell.cache.map(|cache| cache.name()),
            "bytes": block.cell.bytes,
            "seconds": sample.usage.seconds,
            "user_s": sample.usage.user_seconds,
            "system_s": sample.usage.system_seconds,
            "context_switches": sample.usage.context_switches,
            "sum": sample.sum,
        })
    };
    line.samples.iter().map(run).collect()
}

fn median(block: &Block, line: &Line) -> Value {
    json!({
        "strategy": line.subject.name(),
        "source": block.cell.kind.name(),
        "cache": block.cell.cache.map(|cache| cache.name()),
        "bytes": block.cell.bytes,
        "seconds": line.seconds(),
        "context_switches": line.context_switches(),
        "ratios": { "seconds_to_sync": block.to_sync(line) },
    })
}
