//! What a table says, in sentences.

use super::args::Server;
use super::{Block, Findings, Line};
use cringle_report::units::{count, figure};

/// A load that takes so much of its processors has no more to give.
const BUSY: f64 = 0.95;

pub(super) fn title(block: &Block, findings: &Findings) -> String {
    let cell = block.cell;
    let manner = match cell.keepalive {
        true => "that are used again",
        false => "at a time, one request each",
    };
    let page = findings.response_bytes.map(|bytes| format!(", {bytes} bytes a page"));
    let rounds = block.lines.first().map_or(0, |line| line.samples.len());
    format!(
        "{} connections {manner}; {}{}; medians of {rounds} round{}",
        count(cell.connections as f64),
        match cell.workers {
            1 => "1 worker".into(),
            workers => format!("{workers} workers"),
        },
        page.unwrap_or_default(),
        if rounds == 1 { "" } else { "s" }
    )
}

pub(super) fn sentences(block: &Block) -> Vec<String> {
    [against_ring(block), limit(block)].into_iter().flatten().collect()
}

/// How much of the bare ring's CPU a request takes.
pub(super) fn to_ring(block: &Block, line: &Line) -> Option<f64> {
    let ring = block.line(Server::Uring)?;
    Some(line.median(super::Sample::cpu_us)? / ring.median(super::Sample::cpu_us)?)
}

/// "Beside the bare ring, a request takes 1.04 × its CPU with fibers, 1.80 × with tokio, …"
fn against_ring(block: &Block) -> Option<String> {
    let others = block.lines.iter().filter(|line| !line.subject.is(Server::Uring));
    let mut ratios: Vec<(f64, String)> =
        others.filter_map(|line| Some((to_ring(block, line)?, line.label()))).collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ring = block.line(Server::Uring)?.median(super::Sample::cpu_us)?;
    let all: Vec<String> =
        ratios.iter().map(|(ratio, label)| format!("{ratio:.2} × with {label}")).collect();
    (!all.is_empty()).then(|| {
        format!(
            "A request takes {} µs of the server's CPU with the bare ring, and {} that much.",
            figure(ring),
            all.join(", ")
        )
    })
}

/// Where the load is the limit, rates say nothing of servers.
fn limit(block: &Block) -> Option<String> {
    let saturated = |line: &&Line| line.median(super::Sample::load_busy).is_some_and(|b| b > BUSY);
    let all: Vec<String> = block.lines.iter().filter(saturated).map(Line::label).collect();
    (!all.is_empty()).then(|| {
        format!(
            "With {} the load's processors were busy all the time: the rate is the load's, and the \
             server could do more; CPU per request is what to compare.",
            all.join(", ")
        )
    })
}
