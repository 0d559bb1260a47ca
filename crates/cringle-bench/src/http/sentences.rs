//! Interprets the tables of `bench http` in sentences.

use super::args::Server;
use super::{Block, Line, Sample};
use crate::experiment::Named;
use cringle_report::units::{count, counted, figure};

/// A load that keeps this part of its processors busy is saturated.
const BUSY: f64 = 0.95;

pub(super) fn title(block: &Block, response_bytes: Option<usize>) -> String {
    let cell = block.cell;
    let kind = if cell.keepalive { "that are reused" } else { "at a time, one request each" };
    let page = response_bytes.map(|bytes| format!(", {bytes} bytes per page"));
    let rounds = block.lines.first().map_or(0, |line| line.samples.len());
    format!(
        "{} connections {kind}; {}{}; medians of {}",
        count(cell.connections as f64),
        counted(cell.workers, "worker"),
        page.unwrap_or_default(),
        counted(rounds, "round")
    )
}

pub(super) fn sentences(block: &Block) -> Vec<String> {
    [against_ring(block), limit(block)].into_iter().flatten().collect()
}

/// Returns the CPU time of a request as a multiple of that with the bare ring.
pub(super) fn to_ring(block: &Block, line: &Line) -> Option<f64> {
    let ring = block.line(Server::Uring)?;
    Some(line.median(Sample::cpu_us)? / ring.median(Sample::cpu_us)?)
}

/// "A request takes 5.1 µs of the server's CPU time with the bare ring; 1.04 × with fibers, …"
fn against_ring(block: &Block) -> Option<String> {
    let others = block.lines.iter().filter(|line| !line.subject.is(Server::Uring));
    let mut ratios: Vec<(f64, String)> =
        others.filter_map(|line| Some((to_ring(block, line)?, line.subject.name()))).collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ring = block.line(Server::Uring)?.median(Sample::cpu_us)?;
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
fn limit(block: &Block) -> Option<String> {
    let saturated = |line: &&Line| line.median(|sample| sample.load_busy).is_some_and(|b| b > BUSY);
    let all: Vec<String> =
        block.lines.iter().filter(saturated).map(|line| line.subject.name()).collect();
    (!all.is_empty()).then(|| {
        format!(
            "With {} the load kept its processors busy all the time: the rate is that of the \
             load, and the server could do more. Compare the CPU time per request instead.",
            all.join(", ")
        )
    })
}
