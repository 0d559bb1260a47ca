//! The table, read for a person: two or three sentences for each profile.
//!
//! Pure functions of the results. They name the winner only where it wins by more than the
//! noise, and say what the profile is able to show.

use crate::disk::Findings;
use crate::disk::job::Profile;
use crate::disk::plan::Direction;
use crate::disk::results::{Run, beside};
use crate::disk::strategies::Strategy;
use cringle_report::units::{count, figure, mib, size};

/// Differences below this are weather.
const NOISE: f64 = 0.03;
/// The device is at its limit where it gives this part of the most that was seen.
const SATURATED: f64 = 0.95;

/// The runs of one profile, with a heading and sentences.
pub(super) struct Group<'f> {
    pub(super) title: String,
    pub(super) runs: Vec<&'f Run>,
    pub(super) sentences: Vec<String>,
}

pub(super) fn groups(findings: &Findings) -> Vec<Group<'_>> {
    let mut profiles: Vec<Profile> = Vec::new();
    for run in &findings.runs {
        if !profiles.contains(&run.cell.profile) {
            profiles.push(run.cell.profile);
        }
    }
    let group = |profile: &Profile| {
        let runs: Vec<&Run> =
            findings.runs.iter().filter(|run| run.cell.profile == *profile).collect();
        let owned: Vec<Run> = runs.iter().map(|run| (*run).clone()).collect();
        Group {
            title: title(*profile, findings.direction, &owned),
            sentences: sentences(&owned, findings.direction),
            runs,
        }
    };
    profiles.iter().map(group).collect()
}

fn title(profile: Profile, direction: Direction, runs: &[Run]) -> String {
    let Some(first) = runs.first() else { return String::new() };
    let block = size(first.cell.block as u64);
    let noun = direction.noun();
    let what = match profile {
        Profile::Direct => format!("random {noun} of {block} with O_DIRECT"),
        Profile::Cached => format!("random {noun} of {block} in the page cache"),
        Profile::BufferedSeq => format!("sequential {noun} of {block} through an empty page cache"),
        Profile::Wal => format!("appends of {block}, each made durable with fdatasync"),
    };
    let rounds = first.samples.len();
    let medians = if rounds > 1 { format!("; medians of {rounds} rounds") } else { String::new() };
    format!("{}: {what}, {} ops a run{medians}", profile.name(), count(first.ops()))
}

/// What the runs of one profile say.
pub(super) fn sentences(runs: &[Run], direction: Direction) -> Vec<String> {
    let Some(first) = runs.first() else { return Vec::new() };
    let all = match first.cell.profile {
        Profile::Direct => [saturation(runs), against_sync(runs, direction), against_ring(runs)],
        Profile::Cached => [nothing_waits(runs), second_core(runs), against_ring(runs)],
        Profile::BufferedSeq => [readahead(runs, direction), None, None],
        Profile::Wal => [commits(runs), group_commit(runs), None],
    };
    all.into_iter().flatten().collect()
}

fn best<'r>(runs: impl IntoIterator<Item = &'r Run>) -> Option<&'r Run> {
    runs.into_iter().max_by(|a, b| a.iops().total_cmp(&b.iops()))
}

fn named(run: &Run) -> String {
    let depth = match (run.cell.strategy.has_queue(), run.cell.threads) {
        (true, 1) => format!(" at queue depth {}", run.cell.queue_depth),
        (true, threads) => format!(" with {threads} × {} in flight", run.cell.queue_depth),
        (false, 1) => String::new(),
        (false, threads) => format!(" with {threads} threads"),
    };
    format!("`{}`{depth}", run.cell.label())
}

/// "The device saturates at 32 in flight: …"
fn saturation(runs: &[Run]) -> Option<String> {
    // mmap reads partly from memory, which no device limits.
    let device = || runs.iter().filter(|run| run.cell.strategy != Strategy::Mmap);
    let top = best(device())?;
    let limit = top.iops();
    let mut depths: Vec<usize> = device().map(|run| run.cell.in_flight()).collect();
    depths.sort_unstable();
    depths.dedup();
    let most_at = |depth: usize| best(device().filter(|run| run.cell.in_flight() == depth));
    let enough = depths
        .iter()
        .copied()
        .find(|depth| most_at(*depth).is_some_and(|run| run.iops() >= SATURATED * limit))?;
    let deepest = *depths.last()?;
    if depths.len() == 1 {
        return Some(format!("The most was {} IOPS, by {}.", count(limit), named(top)));
    }
    if enough == deepest {
        return Some(format!(
            "The device does not saturate at {deepest} in flight: {} reaches {} IOPS, and more \
             may come from a deeper queue.",
            named(top),
            count(limit)
        ));
    }
    let latency = |depth: usize| most_at(depth).and_then(Run::p50_us);
    let price = match (latency(enough), latency(deepest)) {
        (Some(now), Some(then)) if then > now => format!(
            "; from there to {deepest} in flight only the wait grows, from {} to {} µs",
            figure(now),
            figure(then)
        ),
        _ => String::new(),
    };
    Some(format!(
        "The device saturates at {enough} in flight with {} IOPS ({} MiB/s){price}.",
        count(limit),
        figure(mib(limit * top.cell.block as f64))
    ))
}

/// What one thread with one read in flight leaves lying, and what threads pay for it.
fn against_sync(runs: &[Run], direction: Direction) -> Option<String> {
    let sync = runs.iter().find(|run| run.cell.strategy == Strategy::Sync)?;
    let ours = best(runs.iter().filter(|run| {
        matches!(run.cell.strategy, Strategy::Fibers | Strategy::Batch | Strategy::Uring)
    }))?;
    let ratio = ours.iops() / sync.iops();
    if ratio < 1.0 + NOISE {
        return Some(format!(
            "A plain loop of {} is as good as anything here: {} has {:.2} × its rate.",
            direction.noun(),
            named(ours),
            ratio
        ));
    }
    let threads = best(runs.iter().filter(|run| {
        run.cell.strategy == Strategy::Threads && run.cell.in_flight() == ours.cell.in_flight()
    }));
    let price = threads.map(|threads| {
        format!(
            "; {} threads reach {} IOPS and take {} µs of CPU for each, {} takes {}",
            threads.cell.threads,
            count(threads.iops()),
            figure(threads.cpu_us_per_op()),
            ours.cell.label(),
            figure(ours.cpu_us_per_op())
        )
    });
    Some(format!(
        "{} does {:.1} × what one thread does with one operation in flight{}.",
        named(ours),
        ratio,
        price.unwrap_or_default()
    ))
}

/// Fibers and batches beside the hand-written loop, at the depth nearest to 32.
fn against_ring(runs: &[Run]) -> Option<String> {
    let ring = runs
        .iter()
        .filter(|run| run.cell.strategy == Strategy::Uring)
        .min_by_key(|run| (run.cell.threads, run.cell.queue_depth.abs_diff(32)))?;
    let compared: Vec<String> = [Strategy::Fibers, Strategy::Batch]
        .into_iter()
        .filter_map(|strategy| {
            let run = beside(runs, &ring.cell, strategy)?;
            Some(format!(
                "`{}` {:.2} × its rate for {:.2} × its CPU",
                run.cell.label(),
                run.iops() / ring.iops(),
                run.cpu_us_per_op() / ring.cpu_us_per_op()
            ))
        })
        .collect();
    if compared.is_empty() {
        return None;
    }
    let fio = beside(runs, &ring.cell, Strategy::Fio)
        .map(|fio| format!("; the loop itself has {:.2} × fio's", ring.iops() / fio.iops()));
    Some(format!(
        "Beside the hand-written ring at queue depth {}: {}{}.",
        ring.cell.queue_depth,
        compared.join(", "),
        fio.unwrap_or_default()
    ))
}

fn nothing_waits(runs: &[Run]) -> Option<String> {
    let top = best(runs.iter().filter(|run| run.cell.threads == 1))?;
    let sync = runs.iter().find(|run| run.cell.strategy == Strategy::Sync)?;
    let ratio = top.iops() / sync.iops();
    let why = "In the page cache nothing waits: this is the price of asking";
    if top.cell.strategy == Strategy::Mmap && ratio > 1.0 + NOISE {
        return Some(format!(
            "{why}; a mapping asks the kernel nothing once its pages are there, and `mmap` does \
             {ratio:.2} × a plain loop."
        ));
    }
    Some(if top.cell.strategy == Strategy::Sync || ratio < 1.0 + NOISE {
        format!(
            "{why}, and a plain loop of system calls ({} a second) is the cheapest way of one \
                 thread.",
            count(sync.iops())
        )
    } else {
        format!(
            "{why}; on one thread {} is the cheapest, {ratio:.2} × a plain loop, because one \
                 system call serves many operations.",
            named(top)
        )
    })
}

fn second_core(runs: &[Run]) -> Option<String> {
    let scaling = |strategy: Strategy| {
        let of = |many: bool| {
            best(
                runs.iter()
                    .filter(|run| run.cell.strategy == strategy && (run.cell.threads > 1) == many),
            )
        };
        let (one, many) = (of(false)?, of(true)?);
        Some((many.cell.threads, many.iops() / one.iops()))
    };
    let (count, ours) = scaling(Strategy::Fibers)?;
    let theirs = scaling(Strategy::Threads)
        .map(|(count, ratio)| format!("; `threads` with {count}: {ratio:.2} ×"));
    Some(format!(
        "`fibers` on {count} workers: {ours:.2} × one worker{}.",
        theirs.unwrap_or_default()
    ))
}

fn readahead(runs: &[Run], direction: Direction) -> Option<String> {
    let top = best(runs)?;
    let rate = |run: &Run| format!("{} MiB/s", figure(mib(run.bytes_per_second())));
    let sync = runs.iter().find(|run| run.cell.strategy == Strategy::Sync);
    let Some(sync) = sync else {
        return Some(format!("The fastest was {} with {}.", named(top), rate(top)));
    };
    let ratio = top.iops() / sync.iops();
    if ratio < 1.0 + 2.0 * NOISE {
        let why = if direction.writes() { "writes back" } else { "reads ahead" };
        return Some(format!(
            "The kernel {why} for everyone: a plain loop has {}, and nothing is clearly faster.",
            rate(sync)
        ));
    }
    Some(format!("The fastest was {} with {}, {ratio:.2} × a plain loop.", named(top), rate(top)))
}

fn commits(runs: &[Run]) -> Option<String> {
    // A group commit is another promise to the caller; it has its own sentence.
    let top = best(runs.iter().filter(|run| run.cell.strategy != Strategy::Batch))?;
    let p99 = top.p99_us().map(|us| format!(", 99 of 100 within {} µs", figure(us)));
    let sync = runs.iter().find(|run| run.cell.strategy == Strategy::Sync);
    let ratio = sync
        .filter(|sync| sync.cell != top.cell)
        .map(|sync| format!(": {:.2} × a single committer", top.iops() / sync.iops()));
    Some(format!(
        "{} commits {} times a second{}{}.",
        named(top),
        count(top.iops()),
        p99.unwrap_or_default(),
        ratio.unwrap_or_default()
    ))
}

fn group_commit(runs: &[Run]) -> Option<String> {
    let batch = best(runs.iter().filter(|run| run.cell.strategy == Strategy::Batch))?;
    let other = best(runs.iter().filter(|run| run.cell.strategy != Strategy::Batch))?;
    let ratio = batch.iops() / other.iops();
    (ratio > 1.0 + NOISE).then(|| {
        format!(
            "One fdatasync for {} appends ({}) does {} a second, {ratio:.1} × the best that \
             syncs each.",
            batch.cell.queue_depth,
            named(batch),
            count(batch.iops())
        )
    })
}

#[cfg(test)]
mod tests;
