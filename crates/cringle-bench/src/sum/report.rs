//! The report of `bench sum`: tables, plots and JSON.

use super::{Block, Findings, Line, Sample, sentences};
use crate::meter::Usage;
use cringle_report::failure::Failure;
use cringle_report::page::{Page, Rows, Section, ratio_cell};
use cringle_report::plot::{Plot, Row};
use cringle_report::stats::range;
use cringle_report::units::{count, figure, mib};
use cringle_report::{Outputs, SCHEMA};
use serde_json::{Value, json};

const HEADER: [&str; 8] =
    ["strategy", "s", "fastest–slowest", "× sync", "MiB/s", "user s", "system s", "ctx"];

pub(super) fn write(findings: &Findings, outputs: &Outputs) -> Result<(), Failure> {
    outputs.write(&value(findings), &page(findings))
}

fn page(findings: &Findings) -> Page {
    Page {
        bench: "bench sum".into(),
        title: "The cost of a runtime where it cannot win".into(),
        machine: findings.machine.clone(),
        sections: findings.blocks.iter().map(|block| section(block, findings)).collect(),
        notes: findings.notes.clone(),
    }
}

fn section(block: &Block, findings: &Findings) -> Section {
    Section {
        title: sentences::title(block, findings),
        sentences: sentences::sentences(block),
        plots: vec![
            plot(block, "Time for all bytes", |usage| usage.seconds),
            plot(block, "CPU time for all bytes", Usage::cpu_seconds),
        ],
        table: Some(Rows::new(&HEADER, block.lines.iter().map(|line| cells(block, line)))),
        ..Section::default()
    }
}

fn plot(block: &Block, title: &str, of: fn(&Usage) -> f64) -> Plot {
    let samples = |line: &Line| line.samples.iter().map(|one| of(&one.usage)).collect::<Vec<_>>();
    let row = |line: &Line| Row { label: line.strategy.name().into(), samples: samples(line) };
    Plot::rows(title, "s", block.lines.iter().map(row).collect())
}

fn cells(block: &Block, line: &Line) -> Vec<String> {
    let seconds = line.samples.iter().map(|sample| sample.usage.seconds);
    let (fastest, slowest) = range(seconds).unwrap_or((f64::NAN, f64::NAN));
    vec![
        line.strategy.name().to_string(),
        format!("{:.3}", line.seconds()),
        format!("{fastest:.3}–{slowest:.3}"),
        ratio_cell(block.to_sync(line)),
        figure(mib(block.cell.bytes as f64) / line.seconds()),
        figure(line.median(|usage| usage.user_seconds)),
        figure(line.median(|usage| usage.system_seconds)),
        count(line.median(|usage| usage.context_switches as f64)),
    ]
}

fn value(findings: &Findings) -> Value {
    let blocks = || findings.blocks.iter();
    let of_lines = |of: fn(&Block, &Line) -> Vec<Value>| {
        blocks()
            .flat_map(move |block| block.lines.iter().flat_map(move |line| of(block, line)))
            .collect::<Vec<_>>()
    };
    json!({
        "schema": SCHEMA,
        "benchmark": "sum",
        "machine": findings.machine,
        "message_bytes": findings.message_bytes,
        "runs": of_lines(|block, line| {
            line.samples.iter().map(|sample| run(block, line, sample)).collect()
        }),
        "medians": of_lines(|block, line| vec![median(block, line)]),
        "words": blocks().flat_map(sentences::sentences).collect::<Vec<_>>(),
        "notes": findings.notes,
    })
}

fn run(block: &Block, line: &Line, sample: &Sample) -> Value {
    json!({
        "strategy": line.strategy,
        "source": block.cell.kind,
        "cache": block.cell.cache,
        "bytes": block.cell.bytes,
        "seconds": sample.usage.seconds,
        "user_s": sample.usage.user_seconds,
        "system_s": sample.usage.system_seconds,
        "context_switches": sample.usage.context_switches,
        "sum": sample.sum,
    })
}

fn median(block: &Block, line: &Line) -> Value {
    json!({
        "strategy": line.strategy,
        "source": block.cell.kind,
        "cache": block.cell.cache,
        "bytes": block.cell.bytes,
        "seconds": line.seconds(),
        "context_switches": line.median(|usage| usage.context_switches as f64),
        "ratios": { "seconds_to_sync": block.to_sync(line) },
    })
}
