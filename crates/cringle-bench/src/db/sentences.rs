//! Explains each rung from the figures of the run: what changed, and why it helped or did not.

use super::rungs::Rung;
use super::{Change, DbFindings, ENOUGH_ROUNDS, Line, RungSample};
use crate::experiment::Named;
use cringle_report::units::{count, counted, figure, size};

pub(super) fn title(findings: &DbFindings<'_>) -> String {
    format!(
        "{} {}transactions, each updates a random row of a B-tree of {} in a pool of {}; {} at once \
         from +fibers on",
        count(findings.args.transactions as f64),
        if findings.args.durable { "durable " } else { "" },
        size(findings.args.tree),
        size(findings.args.pool_bytes()),
        findings.args.fibers
    )
}

pub(super) fn all(findings: &DbFindings<'_>) -> Vec<String> {
    let of_lines = findings.lines.iter().map(|line| explain(findings, line));
    let whole =
        [beside_others(findings), idle_steps(findings), few_rounds(findings), beside_fio(findings)];
    of_lines.chain(whole.into_iter().flatten()).collect()
}

/// "+evict: 11,743 tx/s, 1.61 × ring. …"
fn explain(findings: &DbFindings<'_>, line: &Line) -> String {
    let rate = count(line.figure(|one| findings.rate(one)));
    let base =
        line.subject.base().and_then(|base| Some((base, findings.ratio(line.subject, base)?)));
    let ratio = match base {
        None => String::new(),
        Some((base, ratio)) if line.subject.twin_of().is_some() => {
            format!("; {} performs {:.2} of that", base.name(), 1.0 / ratio)
        }
        Some((base, ratio)) => format!(", {ratio:.2} × {}", base.name()),
    };
    let change = base.and_then(|(base, _)| findings.change(line.subject, base));
    let why = reason(findings, line, change);
    let log = if findings.args.durable { log(line.subject) } else { "" };
    let text = format!("{}: {rate} tx/s{ratio}. {} {log}", line.subject.name(), why.trim_end());
    text.trim_end().into()
}

/// Says who shares the flushes of the log.
fn log(rung: Rung) -> &'static str {
    match rung {
        Rung::Posix | Rung::Ring | Rung::Evict => {
            "Each transaction waits for a write and a flush of the log of its own."
        }
        Rung::Threads => "Threads that wait at the same time share a write and a flush of the log.",
        Rung::Tokio => {
            "Each task waits for the log on the blocking pool; those that wait at the same time \
             share a write and a flush."
        }
        _ => {
            "Transactions that wait at the same time share a write and a flush of the log, which \
             blocks no other fiber."
        }
    }
}

fn reason(findings: &DbFindings<'_>, line: &Line, change: Option<Change>) -> String {
    let figures = Figures::of(findings, line);
    match line.subject {
        Rung::Batch | Rung::Registered if findings.without_ring => format!(
            "Fibers have no ring here, so threads perform the same calls as on +fibers: {} calls for \
             each transaction, and {} µs of CPU time.",
            figure(figures.calls),
            figure(figures.cpu_us)
        ),
        Rung::Posix => figures.posix(),
        Rung::Ring => format!(
            "The ring replaces {} calls of pread and pwrite for each transaction by as many of \
             io_uring_enter. Still one operation is in flight. {}",
            figure(figures.reads + figures.writes),
            verdict(
                change,
                "The gain is in the path to the disk.",
                "So it does not help here: the time is the disk's.",
                "So it does not help here: the path through the ring is longer."
            )
        ),
        Rung::Evict => format!(
            "{} changed pages are written back by one call, and the disk performs them at once; a \
             transaction waits {} times instead of for each of its {} reads and writes. {}",
            figure(figures.batch),
            figure(figures.reads + figures.writes / figures.batch),
            figure(figures.reads + figures.writes),
            verdict(
                change,
                "The reads are left, one after the other.",
                "It does not help here: the writes were not what a transaction waited for.",
                "It does not help here: while a batch is written, no page is read."
            )
        ),
        Rung::Fibers => format!(
            "Up to {} transactions wait for the disk at once, and {} write back changed pages. The \
             code of a transaction is the same as on the rungs below. {}",
            findings.args.fibers,
            counted(super::args::EVICTORS, "more fiber"),
            verdict(
                change,
                "A disk with a queue performs many operations in the time of one.",
                "It does not help here: this disk performs one operation at a time.",
                "It does not help here: a single transaction keeps this storage busy."
            )
        ),
        Rung::Batch => batch(findings, &figures, change),
        Rung::Registered => registered(findings, &figures, change),
        _ => beside(findings, &figures, line.subject, change),
    }
}

/// Explains a rung that is not on the ladder.
fn beside(
    findings: &DbFindings<'_>,
    figures: &Figures,
    rung: Rung,
    change: Option<Change>,
) -> String {
    match rung {
        Rung::Threads => format!(
            "{} threads, each with one transaction, on all cores. One lock guards the pool; it is \
             held while a page is searched, not during I/O. A transaction takes {} µs of CPU time \
             and {} context switches. {}",
            findings.args.fibers,
            figure(figures.cpu_us),
            figure(figures.switches),
            verdict(
                change,
                "Threads have many operations in flight, too.",
                "It does not help here: this disk performs one operation at a time.",
                "It does not help here: threads cost more than the disk's queue gains."
            )
        ),
        Rung::Tokio => format!(
            "{} tasks on one thread. tokio has no direct reads, so each task passes its write and \
             read to the blocking pool: {} µs of CPU time and {} context switches for each \
             transaction. {}",
            findings.args.fibers,
            figure(figures.cpu_us),
            figure(figures.switches),
            verdict(
                change,
                "No lock is shared.",
                "The rate is that of the threads which do its work.",
                "The way to the pool and back comes on top of what the threads do."
            )
        ),
        _ => "The same engine on coroutines of the crate corosensei and a bare ring, without a \
              runtime."
            .into(),
    }
}

fn batch(findings: &DbFindings<'_>, figures: &Figures, change: Option<Change>) -> String {
    let before = findings.line(Rung::Fibers).map(|line| Figures::of(findings, line));
    let instead = |of: fn(&Figures) -> f64| {
        before
            .as_ref()
            .map_or(String::new(), |before| format!(" instead of {}", figure(of(before))))
    };
    format!(
        "One call submits what the fibers ask for in a turn: {} calls{} for each transaction, and \
         {} µs of CPU time{}. {}",
        figure(figures.calls),
        instead(|figures| figures.calls),
        figure(figures.cpu_us),
        instead(|figures| figures.cpu_us),
        verdict(change, gain(before.as_ref()), figures.limit(), "The disk starts later.")
    )
}

fn registered(findings: &DbFindings<'_>, figures: &Figures, change: Option<Change>) -> String {
    let before = findings.line(Rung::Batch).map(|line| Figures::of(findings, line));
    let instead = before
        .as_ref()
        .map_or(String::new(), |before| format!(" instead of {}", figure(before.cpu_us)));
    format!(
        "The kernel looks up the file and pins the memory once, not for each operation: {} µs of \
         CPU time{instead}. {}",
        figure(figures.cpu_us),
        verdict(
            change,
            gain(before.as_ref()),
            figures.limit(),
            "It does not help here: each read has more to prepare than it saves."
        )
    )
}

/// Says why less work for the processor has raised the rate of the rung before.
fn gain(before: Option<&Figures>) -> &'static str {
    match before {
        Some(before) if !before.has_idled() => "The processor was the limit.",
        _ => "The rate rose, although the processor was idle for a part of the time before.",
    }
}

/// The figures of a line for each transaction.
struct Figures {
    time_us: f64,
    cpu_us: f64,
    calls: f64,
    reads: f64,
    writes: f64,
    switches: f64,
    /// Pages of a write-back.
    batch: f64,
}

impl Figures {
    fn of(findings: &DbFindings<'_>, line: &Line) -> Figures {
        let each = |of: fn(&RungSample) -> f64| findings.per_transaction(line, of);
        Figures {
            time_us: each(|one| one.usage.seconds * 1e6),
            cpu_us: each(|one| one.usage.cpu_seconds() * 1e6),
            calls: each(|one| one.calls.unwrap_or(0) as f64),
            reads: each(|one| one.counts.reads as f64),
            writes: each(|one| one.counts.writes as f64),
            switches: each(|one| one.usage.context_switches as f64),
            batch: line.figure(|one| one.counts.writes as f64 / one.counts.evictions.max(1) as f64),
        }
    }

    /// Whether the processor waited for the disk for a noticeable part of the time.
    fn has_idled(&self) -> bool {
        self.cpu_us < 0.9 * self.time_us
    }

    /// Says why less work for the processor does not raise the rate.
    fn limit(&self) -> &'static str {
        if self.has_idled() {
            "It does not help here: the processor idles for a part of the time, and the disk is \
             the limit."
        } else {
            "It does not help here: it saves too little of the processor's time."
        }
    }

    fn posix(&self) -> String {
        format!(
            "A transaction reads {} pages and writes {} back, one after the other. It takes {} µs, \
             of which {} µs are CPU time; for the rest it waits.",
            figure(self.reads),
            figure(self.writes),
            figure(self.time_us),
            figure(self.cpu_us)
        )
    }
}

/// Chooses the words for a change of the rate.
fn verdict(change: Option<Change>, rise: &str, none: &str, fall: &str) -> String {
    match change {
        None | Some(Change::Unknown) => String::new(),
        Some(Change::Rise) => rise.into(),
        Some(Change::None) => none.into(),
        Some(Change::Fall) => fall.into(),
        Some(Change::Unclear) => {
            "It rose in some rounds and fell in others: more of them (--repeat) would show whether \
             it helps."
                .into()
        }
    }
}

/// "In the end +registered is 6.5 × posix, 1.15 × threads, 2.16 × tokio."
fn beside_others(findings: &DbFindings<'_>) -> Option<String> {
    let last = findings.lines.iter().rev().find(|line| line.subject.is_on_ladder())?.subject;
    let other = |base: Rung| {
        let ratio = findings.ratio(last, base).filter(|_| base != last)?;
        Some(format!("{ratio:.2} × {}", base.name()))
    };
    let all: Vec<_> =
        [Rung::Posix, Rung::Threads, Rung::Tokio].into_iter().filter_map(other).collect();
    let end = last.name();
    (!all.is_empty()).then(|| format!("At the end of the ladder, {end} is {}.", all.join(", ")))
}

/// Names the rungs of the ladder that do not raise the rate.
fn idle_steps(findings: &DbFindings<'_>) -> Option<String> {
    let idle = |line: &&Line| {
        let base = line.subject.base().filter(|_| line.subject.is_on_ladder());
        let change = base.and_then(|base| findings.change(line.subject, base));
        matches!(change, Some(Change::None | Change::Fall))
    };
    let names: Vec<_> =
        findings.lines.iter().filter(idle).map(|line| line.subject.name()).collect();
    if names.is_empty() {
        return None;
    }
    let verb = if names.len() == 1 { "does" } else { "do" };
    Some(format!(
        "On this machine {} {verb} not raise the rate by more than 5 %.",
        names.join(", ")
    ))
}

/// Says why no causes are named.
fn few_rounds(findings: &DbFindings<'_>) -> Option<String> {
    let has_change = |line: &Line| {
        line.subject.base().is_some_and(|base| findings.ratio(line.subject, base).is_some())
    };
    let is_few = findings.lines.iter().any(|line| line.samples.len() < ENOUGH_ROUNDS);
    (is_few && findings.lines.iter().any(has_change)).then(|| {
        format!(
            "Fewer than {ENOUGH_ROUNDS} rounds do not show whether a difference is noise, so no cause \
             is named: choose a larger --repeat."
        )
    })
}

fn beside_fio(findings: &DbFindings<'_>) -> Option<String> {
    let fio = findings.fio_iops()?;
    let best = findings.lines.iter().rev().find(|line| line.subject.is_on_ladder())?;
    let (iops, ratio) = (best.figure(RungSample::iops), findings.ratio_to_fio(best)?);
    Some(format!(
        "fio performs {} reads and writes a second at the same mix; {} performs {}, {:.2} of that.",
        count(fio),
        best.subject.name(),
        count(iops),
        ratio
    ))
}

#[cfg(test)]
mod tests;
