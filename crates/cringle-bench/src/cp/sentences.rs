//! What a table says, in sentences.

use super::args::Regime;
use super::disk_rate::DiskRate;
use super::{Block, Findings, Line};
use cringle_report::units::{count, figure, mib, size};

/// How many times its fellows' median a sample is when it is pointed out.
const FAR_OFF: f64 = 1.5;
/// Less than this is the scheduler's doing, and nothing to talk about.
const NOISE_SECONDS: f64 = 0.02;

pub(super) fn title(block: &Block) -> String {
    let shape = &block.cell.shape;
    format!(
        "{}: {} files of {} in {} directories ({} MiB), {}",
        block.cell.tree.name(),
        count(shape.files as f64),
        size(shape.file_bytes),
        count(shape.directories() as f64),
        figure(mib(shape.bytes() as f64)),
        block.cell.regime.words()
    )
}

pub(super) fn sentences(block: &Block, findings: &Findings) -> Vec<String> {
    let expected = findings.disk_rates.iter().find(|one| one.tree == block.cell.tree);
    let mut all: Vec<String> = block.lines.iter().filter_map(failed).collect();
    all.extend(ours(block).or_else(|| fastest(block)));
    all.extend(blocks(block));
    all.extend(durable(block));
    all.extend(expected.filter(|_| block.cell.regime.cold()).map(|one| disk(block, one)));
    all.extend(block.lines.iter().filter_map(far_off));
    all
}

/// The samples of a line, fastest and slowest.
pub(super) fn range(line: &Line) -> Option<(f64, f64)> {
    let seconds = || line.samples.iter().map(|sample| sample.seconds);
    (!line.samples.is_empty())
        .then(|| (seconds().fold(f64::INFINITY, f64::min), seconds().fold(0.0, f64::max)))
}

/// The best of those that `keep` admits.
pub(super) fn best(block: &Block, keep: impl Fn(&Line) -> bool) -> Option<&Line> {
    let lines = block.lines.iter().filter(|line| line.seconds().is_some() && keep(line));
    lines.min_by(|a, b| a.seconds().unwrap_or(0.0).total_cmp(&b.seconds().unwrap_or(0.0)))
}

pub(super) fn is_ours(line: &Line) -> bool {
    line.candidate.tool == "cringle"
}

fn failed(line: &Line) -> Option<String> {
    let why = line.error.as_ref()?;
    Some(format!("{} failed, and has no figures: {why}.", line.candidate.label))
}

/// "cringle takes 0.45 of cp's time and 0.91 of that of the best other, cpz; …"
fn ours(block: &Block) -> Option<String> {
    let (ours, base) = (best(block, is_ours)?, block.base()?);
    let ratio = block.ratio(ours)?;
    let mut text =
        format!("{} takes {ratio:.2} of {}'s time", ours.candidate.label, base.candidate.label);
    let other = best(block, |line| !is_ours(line) && line.candidate.tool != "cp");
    if let Some(other) = other {
        let ratio = ours.seconds()? / other.seconds()?;
        text += &format!(", and {ratio:.2} of that of the best other, {}", other.candidate.label);
    }
    text += &format!("; {}.", cpu(ours, base)?);
    let rival = best(block, |line| !is_ours(line))?;
    text += &overlap(ours, rival);
    Some(text)
}

/// Without us.
fn fastest(block: &Block) -> Option<String> {
    // That one sync is a rival of its own: see `durable`.
    let durable = block.cell.regime == Regime::ColdDurable;
    let counts = |line: &Line| !(durable && line.candidate.then_sync);
    let (first, base) = (best(block, counts)?, block.base()?);
    if std::ptr::eq(first, base) {
        let second = best(block, |line| counts(line) && !std::ptr::eq(line, base))?;
        let text = format!("None is faster than {}.", base.candidate.label);
        return Some(text + &overlap(base, second));
    }
    let (name, ratio, cpu) = (&first.candidate.label, block.ratio(first)?, cpu(first, base)?);
    let text =
        format!("{name} is the fastest, in {ratio:.2} of {}'s time; {cpu}.", base.candidate.label);
    Some(text + &overlap(first, base))
}

fn cpu(line: &Line, base: &Line) -> Option<String> {
    let (own, other) = (line.cpu_seconds()?, base.cpu_seconds()?);
    let cores = own / line.seconds()?;
    Some(format!(
        "it takes {:.2} times the CPU, {cores:.1} cores busy on average",
        own / other.max(f64::MIN_POSITIVE)
    ))
}

/// Whether two lines can be told apart.
fn overlap(a: &Line, b: &Line) -> String {
    if a.samples.len() == 1 && b.samples.len() == 1 {
        return " One sample of each proves little.".into();
    }
    match (range(a), range(b)) {
        (Some((a_min, a_max)), Some((b_min, b_max))) if a_min <= b_max && b_min <= a_max => {
            let (a, b) = (&a.candidate.label, &b.candidate.label);
            format!(" The samples of {a} and {b} overlap: which is faster may be chance.")
        }
        _ => String::new(),
    }
}

fn blocks(block: &Block) -> Option<String> {
    let swept = |line: &Line| line.candidate.block_size.is_some();
    let first = best(block, swept)?;
    let slowest = block.lines.iter().filter(|line| swept(line)).filter_map(Line::seconds);
    let slowest = slowest.fold(0.0, f64::max);
    (slowest > first.seconds()?).then(|| {
        let size = size(first.candidate.block_size.unwrap_or(0));
        let gain = slowest / first.seconds().unwrap_or(slowest);
        format!("Of the block sizes {size} is the best, {gain:.2} times as fast as the worst.")
    })
}

/// A copy that lasts can be had in two ways.
fn durable(block: &Block) -> Option<String> {
    if block.cell.regime != Regime::ColdDurable {
        return None;
    }
    let synced = block.lines.iter().find(|line| line.candidate.then_sync)?;
    let (ours, base) = (best(block, is_ours), block.base()?.seconds()?);
    let ratio = synced.seconds()? / base;
    let mut text = format!("One sync after cp takes {ratio:.2} of a fsync for each file");
    if let Some(ours) = ours {
        let ratio = ours.seconds()? / synced.seconds()?;
        text += &format!("; {} takes {ratio:.2} of cp with that one sync", ours.candidate.label);
    }
    Some(text + ".")
}

fn disk(block: &Block, expected: &DiskRate) -> String {
    let rate = |bytes: f64| figure(mib(bytes));
    let seconds = expected.seconds(block.cell.shape.bytes());
    let mut text = format!(
        "fio ({}, {} at a time, 32 in flight, O_DIRECT) reads {} and at once writes {} MiB/s: at \
         that rate the bytes alone take {} s",
        expected.pattern,
        size(expected.block_bytes),
        rate(expected.read_bytes_per_second),
        rate(expected.write_bytes_per_second),
        figure(seconds)
    );
    if let Some((line, best)) = best(block, |_| true).and_then(|line| Some((line, line.seconds()?)))
    {
        text += &format!("; {} takes {:.2} times that", line.candidate.label, best / seconds);
    }
    text + "."
}

fn far_off(line: &Line) -> Option<String> {
    let seconds: Vec<f64> = line.samples.iter().map(|sample| sample.seconds).collect();
    let others = |index: usize| {
        let rest = seconds.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, s)| *s);
        cringle_report::stats::median(rest)
    };
    let off = |(index, own): (usize, &f64)| {
        let others = others(index)?;
        (*own > FAR_OFF * others && *own > others + NOISE_SECONDS).then_some((*own, others))
    };
    let (worst, others) =
        seconds.iter().enumerate().filter_map(off).max_by(|a, b| a.0.total_cmp(&b.0))?;
    let figure_is = if seconds.len() == 2 { "mean" } else { "median" };
    Some(format!(
        "A sample of {} is far off: {} s, beside {}. It is not left out; the figure is the \
         {figure_is} of all.",
        line.candidate.label,
        figure(worst),
        figure(others)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::args::{CpArgs, Regime};
    use super::super::{Block, run, tools};
    use super::*;
    use crate::child::Sample;
    use crate::notes::Notes;
    use clap::{Args, Command, FromArgMatches};

    /// A table of `cp` and other tools, with these seconds.
    fn block(regime: &str, lines: &[(&str, &[f64])]) -> Block {
        let mut words = vec!["cp".to_string(), "--tree=b".into(), format!("--regime={regime}")];
        words.extend(lines.iter().map(|(name, _)| format!("--tool={name}=true")));
        let names: Vec<&str> = lines.iter().map(|(name, _)| *name).collect();
        words.push(format!("--tools={}", names.join(",")));
        let matches = CpArgs::augment_args(Command::new("cp")).get_matches_from(words);
        let args = CpArgs::from_arg_matches(&matches).unwrap();
        let tools = tools::chosen(&args, &mut Notes::default()).unwrap();
        let mut block = run::blocks(&args, &tools).remove(0);
        for line in &mut block.lines {
            let all = lines.iter().find(|(name, _)| *name == line.candidate.tool).unwrap().1;
            let sample = |seconds: &f64| Sample {
                seconds: *seconds,
                user_seconds: 0.0,
                system_seconds: *seconds * 1.5,
            };
            line.samples = all.iter().map(sample).collect();
        }
        block
    }

    #[test]
    fn ours_is_laid_beside_cp_and_the_best_other() {
        let block = block(
            "warm",
            &[("cp", &[1.0, 1.0]), ("cringle", &[0.4]), ("fcp", &[0.6; 3]), ("cpz", &[0.5; 3])],
        );
        let text = ours(&block).unwrap();
        assert!(text.starts_with("cringle takes 0.40 of cp's time, and 0.80"), "{text}");
        assert!(text.contains("best other, cpz; it takes 0.40 times the CPU, 1.5 cores"), "{text}");
        assert!(!text.contains("overlap"), "{text}");
    }

    #[test]
    fn what_may_be_chance_is_called_so() {
        let block = block("warm", &[("cp", &[1.0, 1.4, 1.2]), ("cringle", &[0.9, 1.1, 1.0])]);
        assert!(ours(&block).unwrap().contains("cringle and cp overlap"));
    }

    #[test]
    fn one_sample_is_not_made_much_of() {
        let block = block("warm", &[("cp", &[1.0]), ("cringle", &[0.5])]);
        assert!(ours(&block).unwrap().ends_with("One sample of each proves little."));
    }

    #[test]
    fn a_sample_far_off_is_told_and_a_hasty_millisecond_is_not() {
        let block = block("warm", &[("cp", &[0.79, 6.87, 0.80]), ("cpz", &[0.001, 0.003, 0.001])]);
        let text = far_off(&block.lines[0]).unwrap();
        assert!(text.contains("6.87 s, beside 0.8"), "{text}");
        assert!(text.contains("median"), "{text}");
        assert_eq!(far_off(&block.lines[1]), None);
    }

    #[test]
    fn both_ways_to_a_durable_copy_are_compared() {
        let block = block("cold-durable", &[("cp", &[2.0]), ("cringle", &[1.0])]);
        assert_eq!(block.cell.regime, Regime::ColdDurable);
        let labels: Vec<_> = block.lines.iter().map(|line| &line.candidate.label).collect();
        assert_eq!(labels, ["cp + fsync", "cp, then sync", "cringle + fsync"]);
        assert!(durable(&block).unwrap().contains("cringle + fsync takes 0.50 of cp"));
    }
}
