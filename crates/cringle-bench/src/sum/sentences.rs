//! Interprets the tables of `bench sum` in sentences.

use super::args::Strategy;
use super::{BUFFER_BYTES, Block, Findings, Kind};
use cringle_report::units::{count, size};

pub(super) fn title(block: &Block, findings: &Findings) -> String {
    let (total, read) = (size(block.cell.bytes), size(BUFFER_BYTES as u64));
    match (block.cell.kind, block.cell.cache) {
        (Kind::Tcp, _) => format!(
            "{total} from a TCP connection, sent {} at a time, read {read} at a time",
            size(findings.message_bytes)
        ),
        (Kind::Udp, _) => {
            format!("{total} in datagrams of {}, one for each read", size(findings.message_bytes))
        }
        (Kind::File, cache) => {
            format!("{total} from a {} file, read {read} at a time", cache.map_or("", |c| c.name()))
        }
    }
}

/// "fibers take 1.01 × the plain thread's time, with 3 context switches; tokio takes …"
pub(super) fn sentences(block: &Block) -> Vec<String> {
    let of = |line: &super::Line| {
        let ratio = block.to_sync(line)?;
        let switches = line.median(|usage| usage.context_switches as f64);
        let verb = if line.strategy == Strategy::Fibers { "take" } else { "takes" };
        let name = line.strategy.name();
        Some(format!(
            "{name} {verb} {ratio:.2} × the plain thread's time, with {} context switch{}",
            count(switches),
            if switches == 1.0 { "" } else { "es" }
        ))
    };
    let others = block.lines.iter().filter(|line| line.strategy != Strategy::Sync);
    let all: Vec<String> = others.filter_map(of).collect();
    if all.is_empty() { Vec::new() } else { vec![format!("{}.", all.join("; "))] }
}
