//! Sums the report up in one sentence: the `verdict` of the JSON.

use super::features::{Finding, Presence};
use super::limits::Limit;
use super::measure::{Measured, Read};
use super::ring::{Ring, Start};
use cringle_report::units::{count, size};
use serde::Serialize;

/// The driver that a program gets here, and what it lacks.
#[derive(Debug, Serialize)]
pub(crate) struct Conclusion {
    /// `ring` or `fallback`.
    pub driver: &'static str,
    /// The driver's features that this kernel lacks, and the limits that are too low.
    pub missing: Vec<String>,
    pub sentence: String,
}

pub(crate) fn of(ring: &Ring, limits: &[Limit], measured: Option<&Measured>) -> Conclusion {
    let missing = missing(&ring.features, limits);
    if ring.usable {
        return usable(missing, &ring.features, measured);
    }
    Conclusion { driver: "fallback", missing, sentence: denied(ring) }
}

fn missing(features: &[Finding], limits: &[Limit]) -> Vec<String> {
    let features = features
        .iter()
        .filter(|found| found.used_by_the_driver && found.state == Presence::Missing)
        .map(|found| format!("{} (Linux {})", found.name, found.since));
    let limits = limits.iter().filter(|limit| limit.enough == Some(false)).map(|limit| {
        let value = limit.value.as_deref().unwrap_or("unknown");
        let remedy = limit.remedy.as_ref().map(|remedy| format!(": {remedy}"));
        format!("more {} than {value}{}", limit.name, remedy.unwrap_or_default())
    });
    features.chain(limits).collect()
}

fn usable(missing: Vec<String>, features: &[Finding], measured: Option<&Measured>) -> Conclusion {
    let rate = measured.and_then(best).map(|words| format!(": {words}")).unwrap_or_default();
    let unknown = features
        .iter()
        .filter(|found| found.used_by_the_driver && found.state == Presence::Unknown)
        .count();
    let lack = match (missing.is_empty(), unknown) {
        (true, 0) => "nothing is missing".to_owned(),
        (true, n) => format!("{n} of the driver's features could not be tested"),
        (false, _) => format!("it lacks {}", missing.join("; ")),
    };
    Conclusion { driver: "ring", missing, sentence: format!("The ring is usable{rate}; {lack}.") }
}

/// Describes the deepest direct reads, or else the deepest cached reads, of the first path with
/// any.
fn best(measured: &Measured) -> Option<String> {
    let deepest = |profile: &str| {
        let of = measured.reads.iter().filter(|read| read.profile == profile);
        let of: Vec<&Read> = of.filter(|read| read.fibers.is_some()).collect();
        of.into_iter().rev().max_by_key(|read| (read.block_bytes, read.queue_depth))
    };
    let read = deepest("direct").or_else(|| deepest("cached"))?;
    let place = if read.profile == "direct" { "with O_DIRECT" } else { "from the page cache" };
    Some(format!(
        "1 worker read {} blocks of {} a second {place}, {} in flight",
        count(read.fibers?),
        size(read.block_bytes as u64),
        read.queue_depth
    ))
}

fn denied(ring: &Ring) -> String {
    let consequence = match ring.runtime {
        Start::Fallback => "Cringle will run on epoll and threads",
        Start::Refuses => "Cringle will not start on the ring",
        Start::Killed => "A program on Cringle is killed when it starts",
        Start::Ring => "Cringle starts on the ring, but cannot be relied on",
        Start::Unknown => "Cringle has no ring here",
    };
    let whats: Vec<_> = ring.causes.iter().map(|cause| cause.what.as_str()).collect();
    let remedy = ring.causes.first().and_then(|cause| cause.remedies.first());
    let remedy = remedy.map(|remedy| format!("; what to do: {remedy}")).unwrap_or_default();
    format!("{consequence}, because {}{remedy}", whats.join(", and "))
}
