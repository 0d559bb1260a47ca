//! Interprets the table of each profile in two or three sentences.
//!
//! Pure functions of the results. They name a winner only if it leads by more than the noise, and
//! answer the question that the profile is suited for.

use crate::disk::job::Profile;
use crate::disk::plan::Direction;
use crate::disk::results::{Run, beside};
use crate::disk::strategies::Strategy;
use crate::experiment::Named;
use cringle_report::units::{count, figure, mib, size};

/// Smaller differences are noise.
const NOISE: f64 = 0.03;
/// The device is saturated at the depth that reaches this part of the highest rate.
const SATURATED: f64 = 0.95;

/// Whether the rates of two runs differ by more than the noise, but by less than the rounds of each
/// do.
fn is_unclear(one: &Run, other: &Run) -> bool {
    let ((low, high), (lowest, highest)) = (one.rates(), other.rates());
    (one.iops() / other.iops() - 1.0).abs() > NOISE && low <= highest && lowest <= high
}

/// Says that two runs cannot be compared.
fn no_verdict(one: &Run, other: &Run) -> String {
    let (one, other) = if one.iops() < other.iops() { (one, other) } else { (other, one) };
    let rates = |run: &Run| {
        let (low, high) = run.rates();
        format!("{} has {} to {}", named(run), count(low), count(high))
    };
    format!(
        "The rounds differ by more than the strategies do ({} IOPS, {}): no verdict. Repeat it on \
         a quiet machine, or with a higher --repeat.",
        rates(one),
        rates(other)
    )
}

/// Returns the title of the runs of one profile.
pub(super) fn title(runs: &[Run], direction: Direction) -> String {
    let Some(first) = runs.first() else { return String::new() };
    let profile = first.subject.profile;
    let block = size(first.subject.block as u64);
    let noun = direction.noun();
    let accesses = match profile {
        Profile::Direct => format!("random {noun} of {block} with O_DIRECT"),
        Profile::Cached => format!("random {noun} of {block} in the page cache"),
        Profile::Wal => format!("appends of {block}, each made durable with fdatasync"),
    };
    let rounds = first.samples.len();
    let medians = if rounds > 1 { format!("; medians of {rounds} rounds") } else { String::new() };
    format!("{}: {accesses}, {} ops per run{medians}", profile.name(), count(first.ops()))
}

/// Returns the sentences about the runs of one profile.
pub(super) fn sentences(runs: &[Run], direction: Direction) -> Vec<String> {
    let Some(first) = runs.first() else { return Vec::new() };
    let all = match first.subject.profile {
        Profile::Direct => [saturation(runs), against_sync(runs, direction), against_ring(runs)],
        Profile::Cached => [overhead(runs), second_core(runs), against_ring(runs)],
        Profile::Wal => [commits(runs), group_commit(runs), None],
    };
    let mut all: Vec<String> = all.into_iter().flatten().collect();
    // Two questions may have the same lack of an answer.
    all.dedup();
    all
}

/// Returns the run with the highest rate.
fn best<'r>(runs: impl IntoIterator<Item = &'r Run>) -> Option<&'r Run> {
    runs.into_iter().max_by(|a, b| a.iops().total_cmp(&b.iops()))
}

/// Describes a run: `uring` at queue depth 32.
fn named(run: &Run) -> String {
    let depth = match (run.subject.strategy.has_queue(), run.subject.threads) {
        (true, 1) => format!(" at queue depth {}", run.subject.queue_depth),
        (true, threads) => format!(" with {threads} × {} in flight", run.subject.queue_depth),
        (false, 1) => String::new(),
        (false, threads) => format!(" with {threads} threads"),
    };
    format!("`{}`{depth}", run.subject.label())
}

/// "The device saturates at 32 in flight with 80,000 IOPS; …"
fn saturation(runs: &[Run]) -> Option<String> {
    // mmap is left out: it reads partly from memory, where the device is no limit.
    let device = || runs.iter().filter(|run| run.subject.strategy != Strategy::Mmap);
    let top = best(device())?;
    let limit = top.iops();
    let mut depths: Vec<usize> = device().map(|run| run.subject.in_flight()).collect();
    depths.sort_unstable();
    depths.dedup();
    let most_at = |depth: usize| best(device().filter(|run| run.subject.in_flight() == depth));
    let enough = depths
        .iter()
        .copied()
        .find(|depth| most_at(*depth).is_some_and(|run| run.iops() >= SATURATED * limit))?;
    let deepest = *depths.last()?;
    if depths.len() == 1 {
        return Some(format!("The highest rate is {} IOPS, by {}.", count(limit), named(top)));
    }
    let lower = depths.iter().copied().filter(|depth| *depth < enough).max();
    if let Some(lower) = lower.and_then(most_at).filter(|lower| is_unclear(lower, top)) {
        return Some(no_verdict(lower, top));
    }
    if enough == deepest {
        return Some(format!(
            "The device does not saturate at {deepest} in flight: {} reaches {} IOPS, and a deeper \
             queue may reach more.",
            named(top),
            count(limit)
        ));
    }
    let latency = |depth: usize| most_at(depth).and_then(Run::p50_us);
    let price = match (latency(enough), latency(deepest)) {
        (Some(here), Some(there)) if there > here => format!(
            "; up to {deepest} in flight only the latency grows, from {} to {} µs",
            figure(here),
            figure(there)
        ),
        _ => String::new(),
    };
    Some(format!(
        "The device saturates at {enough} in flight with {} IOPS ({} MiB/s){price}.",
        count(limit),
        figure(mib(limit * top.subject.block as f64))
    ))
}

/// Compares the best of fibers, batch and uring with one thread, and their CPU time with that of
/// threads.
fn against_sync(runs: &[Run], direction: Direction) -> Option<String> {
    let sync = runs.iter().find(|run| run.subject.strategy == Strategy::Sync)?;
    let ours = best(runs.iter().filter(|run| {
        matches!(run.subject.strategy, Strategy::Fibers | Strategy::Batch | Strategy::Uring)
    }))?;
    let ratio = ours.iops() / sync.iops();
    if is_unclear(ours, sync) {
        return Some(no_verdict(ours, sync));
    }
    if ratio < 1.0 + NOISE {
        return Some(format!(
            "A plain loop of {} is as fast as any way here: {} has {:.2} × its rate.",
            direction.noun(),
            named(ours),
            ratio
        ));
    }
    let threads = best(runs.iter().filter(|run| {
        run.subject.strategy == Strategy::Threads
            && run.subject.in_flight() == ours.subject.in_flight()
    }));
    let price = threads.map(|threads| {
        format!(
            "; {} threads reach {} IOPS and need {} µs of CPU per operation, {} needs {}",
            threads.subject.threads,
            count(threads.iops()),
            figure(threads.cpu_us_per_op()),
            ours.subject.label(),
            figure(ours.cpu_us_per_op())
        )
    });
    Some(format!(
        "{} has {:.1} × the rate of one thread with one operation in flight{}.",
        named(ours),
        ratio,
        price.unwrap_or_default()
    ))
}

/// Compares fibers and batches with the hand-written ring, at the depth nearest to 32.
fn against_ring(runs: &[Run]) -> Option<String> {
    let ring = runs
        .iter()
        .filter(|run| run.subject.strategy == Strategy::Uring)
        .min_by_key(|run| (run.subject.threads, run.subject.queue_depth.abs_diff(32)))?;
    let compared: Vec<String> = [Strategy::Fibers, Strategy::Batch]
        .into_iter()
        .filter_map(|strategy| {
            let run = beside(runs, &ring.subject, strategy)?;
            if is_unclear(run, ring) {
                let (low, high) = run.rates();
                let (lowest, highest) = ring.rates();
                return Some(format!(
                    "no verdict on `{}`, whose rounds have {} to {} IOPS and the ring's {} to {}",
                    run.subject.label(),
                    count(low),
                    count(high),
                    count(lowest),
                    count(highest)
                ));
            }
            Some(format!(
                "`{}` has {:.2} × its rate for {:.2} × its CPU time",
                run.subject.label(),
                run.iops() / ring.iops(),
                run.cpu_us_per_op() / ring.cpu_us_per_op()
            ))
        })
        .collect();
    if compared.is_empty() {
        return None;
    }
    let fio = beside(runs, &ring.subject, Strategy::Fio)
        .map(|fio| format!("; the ring itself has {:.2} × fio's rate", ring.iops() / fio.iops()));
    Some(format!(
        "Compared with the hand-written ring at queue depth {}: {}{}.",
        ring.subject.queue_depth,
        compared.join(", "),
        fio.unwrap_or_default()
    ))
}

fn overhead(runs: &[Run]) -> Option<String> {
    let top = best(runs.iter().filter(|run| run.subject.threads == 1))?;
    let sync = runs.iter().find(|run| run.subject.strategy == Strategy::Sync)?;
    let ratio = top.iops() / sync.iops();
    if is_unclear(top, sync) {
        return Some(no_verdict(top, sync));
    }
    let why = "In the page cache no operation waits: this is pure overhead";
    if top.subject.strategy == Strategy::Mmap && ratio > 1.0 + NOISE {
        return Some(format!(
            "{why}; a mapping needs no system call once its pages are mapped, and `mmap` has \
             {ratio:.2} × the rate of a plain loop."
        ));
    }
    Some(if top.subject.strategy == Strategy::Sync || ratio < 1.0 + NOISE {
        format!(
            "{why}, and on one thread a plain loop of system calls ({} per second) has the least.",
            count(sync.iops())
        )
    } else {
        format!(
            "{why}; on one thread {} has the least, with {ratio:.2} × the rate of a plain loop, \
             because one system call serves many operations.",
            named(top)
        )
    })
}

fn second_core(runs: &[Run]) -> Option<String> {
    let scaling = |strategy: Strategy| {
        let of = |many: bool| {
            best(runs.iter().filter(|run| {
                run.subject.strategy == strategy && (run.subject.threads > 1) == many
            }))
        };
        let (one, many) = (of(false)?, of(true)?);
        let ratio = match is_unclear(many, one) {
            true => "no verdict within the spread of the rounds".to_owned(),
            false => format!("{:.2} ×", many.iops() / one.iops()),
        };
        Some((many.subject.threads, ratio))
    };
    let (count, ours) = scaling(Strategy::Fibers)?;
    let theirs = scaling(Strategy::Threads)
        .map(|(count, ratio)| format!("; `threads` with {count}, compared with one: {ratio}"));
    Some(format!(
        "`fibers` on {count} workers, compared with one: {ours}{}.",
        theirs.unwrap_or_default()
    ))
}

fn commits(runs: &[Run]) -> Option<String> {
    // A group commit gives the caller another guarantee, and has its own sentence.
    let top = best(runs.iter().filter(|run| run.subject.strategy != Strategy::Batch))?;
    let p99 = top.p99_us().map(|us| format!(", 99 % of them within {} µs", figure(us)));
    let sync = runs.iter().find(|run| run.subject.strategy == Strategy::Sync);
    let ratio =
        sync.filter(|sync| sync.subject != top.subject).map(|sync| match is_unclear(top, sync) {
            true => "; within the spread of its rounds, a single committer is as fast".to_owned(),
            false => format!(": {:.2} × a single committer", top.iops() / sync.iops()),
        });
    Some(format!(
        "{} commits {} times per second{}{}.",
        named(top),
        count(top.iops()),
        p99.unwrap_or_default(),
        ratio.unwrap_or_default()
    ))
}

fn group_commit(runs: &[Run]) -> Option<String> {
    let batch = best(runs.iter().filter(|run| run.subject.strategy == Strategy::Batch))?;
    let groups = [Strategy::Batch, Strategy::Log];
    let other = best(runs.iter().filter(|run| !groups.contains(&run.subject.strategy)))?;
    let ratio = batch.iops() / other.iops();
    (ratio > 1.0 + NOISE && !is_unclear(batch, other)).then(|| {
        format!(
            "With one fdatasync for {} appends, {} does {} per second, {ratio:.1} × the best that \
             syncs each append.",
            batch.subject.queue_depth,
            named(batch),
            count(batch.iops())
        )
    })
}

#[cfg(test)]
mod tests;
