//! The report of `cringle sim`, as text and as JSON.

use super::seeds::SeedSummary;
use cringle::sim::Fault;
use cringle_report as report;
use cringle_report::failure::Failure;
use serde_json::{Map, Value, json};
use std::path::Path;

pub(super) fn write(summary: &SeedSummary, json: Option<&Path>) -> Result<(), Failure> {
    if let Some(path) = json {
        report::save(path, &value_of(summary))?;
    }
    if report::is_stdout(json) { Ok(()) } else { report::print(&text_of(summary)) }
}

fn text_of(summary: &SeedSummary) -> String {
    let SeedSummary { passed, seconds, threads, sums, .. } = summary;
    let rate = *passed as f64 / seconds.max(1e-9);
    let injected: u64 = sums.faults.iter().sum();
    let s = if *threads == 1 { "" } else { "s" };
    format!(
        "{passed} seeds passed in {seconds:.1} s on {threads} thread{s}: {rate:.0} seeds/s\n\
         {} fibers, {} operations, {} cancels, {injected} faults, {} losses of power, {:.0} s of \
         virtual time\n",
        sums.fibers,
        sums.operations,
        sums.cancels,
        sums.power_losses,
        sums.virtual_time.as_secs_f64(),
    )
}

fn value_of(summary: &SeedSummary) -> Value {
    let SeedSummary { start, passed, seconds, threads, sums, failure } = summary;
    let faults: Map<String, Value> = Fault::ALL
        .iter()
        .map(|fault| (format!("{fault:?}"), json!(sums.faults[*fault as usize])))
        .collect();
    json!({
        "schema": report::SCHEMA,
        "command": "sim",
        "start": start,
        "seeds_passed": passed,
        "threads": threads,
        "seconds": seconds,
        "seeds_per_second": *passed as f64 / seconds.max(1e-9),
        "fibers": sums.fibers,
        "operations": sums.operations,
        "cancels": sums.cancels,
        "power_losses": sums.power_losses,
        "virtual_seconds": sums.virtual_time.as_secs_f64(),
        "faults": faults,
        "failure": failure.as_ref().map(|failure| json!({
            "seed": failure.seed,
            "checker": format!("{:?}", failure.checker),
            "message": failure.message,
        })),
    })
}
