//! Interprets the tables of `bench cp` in sentences.

use super::args::Regime;
use super::{Line, Table};
use crate::experiment::Named;
use crate::meter::Usage;
use cringle_report::stats;
use cringle_report::units::{count, figure, mib, size};

/// A sample this many times the median of the others is an outlier.
const FAR_OFF: f64 = 1.5;
/// Smaller differences are noise of the scheduler.
const NOISE_SECONDS: f64 = 0.02;

pub(super) fn title(table: &Table) -> String {
    let shape = &table.case.shape;
    format!(
        "{}: {} files of {} in {} directories ({} MiB), {}",
        table.case.tree.name().to_uppercase(),
        count(shape.files as f64),
        size(shape.file_bytes),
        count(shape.directories() as f64),
        figure(mib(shape.bytes() as f64)),
        table.case.regime.describe()
    )
}

pub(super) fn sentences(table: &Table) -> Vec<String> {
    let mut all: Vec<String> = table.lines.iter().filter_map(failed).collect();
    all.extend(ours(table).or_else(|| fastest(table)));
    all.extend(durable(table));
    all.extend(table.lines.iter().filter_map(outlier));
    all
}

/// Returns the fastest row for which `keep` returns true.
pub(super) fn best(table: &Table, keep: impl Fn(&Line) -> bool) -> Option<&Line> {
    let lines = table.lines.iter().filter(|line| line.seconds().is_some() && keep(line));
    lines.min_by(|a, b| a.seconds().unwrap_or(0.0).total_cmp(&b.seconds().unwrap_or(0.0)))
}

pub(super) fn is_ours(line: &Line) -> bool {
    line.subject.tool == "cringle"
}

fn failed(line: &Line) -> Option<String> {
    let why = line.subject.error.as_ref()?;
    Some(format!("{} failed, and has no figures: {why}.", line.subject.label))
}

/// "cringle takes 0.45 × cp's time, and 0.91 × that of the best other command, cpz; …"
fn ours(table: &Table) -> Option<String> {
    let (ours, base) = (best(table, is_ours)?, table.base()?);
    let ratio = table.ratio(ours)?;
    let mut text =
        format!("{} takes {ratio:.2} × {}'s time", ours.subject.label, base.subject.label);
    let other = best(table, |line| !is_ours(line) && line.subject.tool != "cp");
    if let Some(other) = other {
        let ratio = ours.seconds()? / other.seconds()?;
        let label = &other.subject.label;
        text += &format!(", and {ratio:.2} × that of the best other command, {label}");
    }
    text += &format!("; {}.", cpu(ours, base)?);
    let rival = best(table, |line| !is_ours(line))?;
    text += &overlap(ours, rival);
    Some(text)
}

/// Names the fastest command, if `cringle cp` is not measured.
fn fastest(table: &Table) -> Option<String> {
    // A copy with one sync is compared separately: see `durable`.
    let durable = table.case.regime == Regime::ColdDurable;
    let counts = |line: &Line| !(durable && line.subject.then_sync);
    let (first, base) = (best(table, counts)?, table.base()?);
    if std::ptr::eq(first, base) {
        let second = best(table, |line| counts(line) && !std::ptr::eq(line, base))?;
        let text = format!("No command is faster than {}.", base.subject.label);
        return Some(text + &overlap(base, second));
    }
    let (name, ratio, cpu) = (&first.subject.label, table.ratio(first)?, cpu(first, base)?);
    let text =
        format!("{name} is the fastest, with {ratio:.2} × {}'s time; {cpu}.", base.subject.label);
    Some(text + &overlap(first, base))
}

fn cpu(line: &Line, base: &Line) -> Option<String> {
    let (own, other) = (line.median(Usage::cpu_seconds)?, base.median(Usage::cpu_seconds)?);
    let cores = own / line.seconds()?;
    Some(format!(
        "it takes {:.2} × the CPU time, with {cores:.1} cores busy on average",
        own / other.max(f64::MIN_POSITIVE)
    ))
}

/// Returns a warning if the samples of two rows overlap, or are too few.
fn overlap(a: &Line, b: &Line) -> String {
    if a.samples.len() == 1 && b.samples.len() == 1 {
        return " One sample of each proves little.".into();
    }
    let range = |line: &Line| line.range(|usage| usage.seconds);
    let ((fastest_a, slowest_a), (fastest_b, slowest_b)) = (range(a), range(b));
    if fastest_a <= slowest_b && fastest_b <= slowest_a {
        let (a, b) = (&a.subject.label, &b.subject.label);
        return format!(" The samples of {a} and {b} overlap, so the order may be chance.");
    }
    String::new()
}

/// Compares the two ways to a durable copy.
fn durable(table: &Table) -> Option<String> {
    if table.case.regime != Regime::ColdDurable {
        return None;
    }
    let synced = table.lines.iter().find(|line| line.subject.then_sync)?;
    let (ours, base) = (best(table, is_ours), table.base()?.seconds()?);
    let ratio = synced.seconds()? / base;
    let mut text = format!("cp with one sync takes {ratio:.2} × its time with a sync of each file");
    if let Some(ours) = ours {
        let ratio = ours.seconds()? / synced.seconds()?;
        text += &format!("; {} takes {ratio:.2} × cp with one sync", ours.subject.label);
    }
    Some(text + ".")
}

/// Describes the worst outlier of a row.
fn outlier(line: &Line) -> Option<String> {
    let seconds = line.values(|usage| usage.seconds);
    let others = |index: usize| {
        let rest = seconds.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, s)| *s);
        stats::median(rest)
    };
    let off = |(index, own): (usize, &f64)| {
        let others = others(index)?;
        (*own > FAR_OFF * others && *own > others + NOISE_SECONDS).then_some((*own, others))
    };
    let (worst, others) =
        seconds.iter().enumerate().filter_map(off).max_by(|a, b| a.0.total_cmp(&b.0))?;
    let figure_is = if seconds.len() == 2 { "mean" } else { "median" };
    Some(format!(
        "A sample of {} is an outlier: {} s, compared with {}. The figure is the {figure_is} of \
         all samples, including this one.",
        line.subject.label,
        figure(worst),
        figure(others)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::args::{CpArgs, Regime};
    use super::super::{Table, run, tools};
    use super::*;
    use crate::experiment::Notes;
    use clap::{Args, Command, FromArgMatches};

    /// A table of `cp` and other tools, with these seconds.
    fn table(regime: &str, lines: &[(&str, &[f64])]) -> Table {
        let mut words = vec!["cp".to_string(), "--tree=b".into(), format!("--regime={regime}")];
        words.extend(lines.iter().map(|(name, _)| format!("--tool={name}=true")));
        let names: Vec<&str> = lines.iter().map(|(name, _)| *name).collect();
        words.push(format!("--tools={}", names.join(",")));
        let matches = CpArgs::augment_args(Command::new("cp")).get_matches_from(words);
        let args = CpArgs::from_arg_matches(&matches).unwrap();
        let tools = tools::chosen(&args, &mut Notes::default()).unwrap();
        let mut table = run::tables(&args, &tools).remove(0);
        for line in &mut table.lines {
            let all = lines.iter().find(|(name, _)| *name == line.subject.tool).unwrap().1;
            let sample = |seconds: &f64| Usage {
                seconds: *seconds,
                system_seconds: *seconds * 1.5,
                ..Usage::default()
            };
            line.samples = all.iter().map(sample).collect();
        }
        table
    }

    #[test]
    fn cringle_is_compared_with_cp_and_the_best_other() {
        let table = table(
            "warm",
            &[("cp", &[1.0, 1.0]), ("cringle", &[0.4]), ("fcp", &[0.6; 3]), ("cpz", &[0.5; 3])],
        );
        let text = ours(&table).unwrap();
        assert!(text.starts_with("cringle takes 0.40 × cp's time, and 0.80"), "{text}");
        assert!(text.contains("command, cpz; it takes 0.40 × the CPU time, with 1.5"), "{text}");
        assert!(!text.contains("overlap"), "{text}");
    }

    #[test]
    fn overlapping_samples_are_pointed_out() {
        let table = table("warm", &[("cp", &[1.0, 1.4, 1.2]), ("cringle", &[0.9, 1.1, 1.0])]);
        assert!(ours(&table).unwrap().contains("cringle and cp overlap"));
    }

    #[test]
    fn single_samples_are_called_weak() {
        let table = table("warm", &[("cp", &[1.0]), ("cringle", &[0.5])]);
        assert!(ours(&table).unwrap().ends_with("One sample of each proves little."));
    }

    #[test]
    fn outliers_above_the_noise_are_reported() {
        let table = table("warm", &[("cp", &[0.79, 6.87, 0.80]), ("cpz", &[0.001, 0.003, 0.001])]);
        let text = outlier(&table.lines[0]).unwrap();
        assert!(text.contains("6.87 s, compared with 0.8"), "{text}");
        assert!(text.contains("median"), "{text}");
        assert_eq!(outlier(&table.lines[1]), None);
    }

    #[test]
    fn both_ways_to_a_durable_copy_are_compared() {
        let table = table("cold-durable", &[("cp", &[2.0]), ("cringle", &[1.0])]);
        assert_eq!(table.case.regime, Regime::ColdDurable);
        let labels: Vec<_> = table.lines.iter().map(|line| &line.subject.label).collect();
        assert_eq!(labels, ["cp + fsync", "cp, then sync", "cringle + fsync"]);
        assert!(durable(&table).unwrap().contains("cringle + fsync takes 0.50 × cp"));
    }
}
