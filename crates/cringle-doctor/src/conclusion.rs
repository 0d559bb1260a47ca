//! Sums the report up in one sentence: the `verdict` of the JSON.

use super::features::{Finding, Presence};
use super::kernel::Kernel;
use super::limits::Limit;
use super::measure::{Measured, Read};
use super::ring::Ring;
use super::start::Start;
use cringle_report::units::{count, size};
use serde::Serialize;

/// The driver that a program gets here, and what it lacks.
#[derive(Debug, Serialize)]
pub(crate) struct Conclusion {
    /// `ring` or `fallback`.
    pub driver: &'static str,
    /// The driver's features that this kernel lacks, and the limits that are too low.
    pub missing: Vec<String>,
    /// What could not be examined of the features and the limits.
    pub unknown: Vec<String>,
    pub sentence: String,
}

pub(crate) fn of(
    ring: &Ring,
    limits: &[Limit],
    measured: Option<&Measured>,
    kernel: &Kernel,
) -> Conclusion {
    let (missing, unknown) = (missing(&ring.features, limits), unknown(&ring.features, limits));
    let (driver, sentence) = match ring.usable {
        true => ("ring", usable(&missing, &unknown, measured, kernel)),
        false => ("fallback", denied(ring)),
    };
    Conclusion { driver, missing, unknown, sentence }
}

fn unknown(features: &[Finding], limits: &[Limit]) -> Vec<String> {
    let is_unknown = |found: &&Finding| found.state == Presence::Unknown;
    let features = features.iter().filter(|found| found.used_by_the_driver).filter(is_unknown);
    let limits = limits.iter().filter(|limit| limit.enough.is_none());
    features.map(|found| found.name.clone()).chain(limits.map(|limit| limit.name.into())).collect()
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

fn usable(
    missing: &[String],
    unknown: &[String],
    measured: Option<&Measured>,
    kernel: &Kernel,
) -> String {
    let rate = measured.and_then(best).map(|words| format!(": {words}")).unwrap_or_default();
    let because = if kernel.proc_is_readable { "" } else { ", because /proc cannot be read" };
    let lack = (!missing.is_empty()).then(|| format!("it lacks {}", missing.join("; ")));
    let rest =
        (!unknown.is_empty()).then(|| format!("not examined{because}: {}", unknown.join(", ")));
    let found: Vec<_> = lack.into_iter().chain(rest).collect();
    let found = if found.is_empty() { "nothing is missing".into() } else { found.join("; ") };
    format!("The ring is usable{rate}; {found}.")
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
        Start::Refuses => "Cringle will not start",
        Start::Killed => "A program on Cringle is killed when it starts",
        Start::Ring => "Cringle starts on the ring, but cannot be relied on",
        Start::Unknown => "Cringle has no ring here",
    };
    let whats: Vec<_> = ring.causes.iter().map(|cause| cause.what.as_str()).collect();
    let remedy = ring.causes.first().and_then(|cause| cause.remedies.first());
    let remedy = remedy.map(|remedy| format!("; what to do: {remedy}")).unwrap_or_default();
    format!("{consequence}, because {}{remedy}", whats.join(", and "))
}
