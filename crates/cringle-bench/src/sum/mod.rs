//! `cringle bench sum`: sums all bytes of a file or a connection, 32 KiB at a time, one read after
//! another. Nothing else is in flight, so this shows the cost of a runtime that cannot win: the
//! main figure is the time of each strategy as a part of a plain thread's time.
//!
//! Every strategy opens its source and starts its runtime before the clock starts, and stops the
//! clock after the last byte. All sums must be equal.

mod args;
mod feed;
mod report;
mod source;
mod strategies;

pub use args::SumArgs;

use crate::experiment::{self, Named, Notes, Report};
use crate::latency::Latencies;
use crate::meter::Usage;
use crate::rounds::{Progress, turns};
use crate::target::{Target, TargetSpec};
use args::{Cache, Strategy};
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::Machine;
use cringle_report::units::size;
use source::Source;

/// Bytes of one read.
const BUFFER_BYTES: usize = 32 << 10;

/// The source of a table, and the state of its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SumCase {
    /// `None` for a connection.
    cache: Option<Cache>,
    bytes: u64,
}

impl SumCase {
    fn source(&self) -> &'static str {
        if self.cache.is_some() { "file" } else { "tcp" }
    }
}

/// One pass of a strategy over its source.
#[derive(Clone, Debug)]
struct SumSample {
    usage: Usage,
    sum: u64,
}

type Line = experiment::Line<Strategy, SumSample>;

impl Line {
    fn seconds(&self) -> f64 {
        self.figure(|sample| sample.usage.seconds)
    }

    fn context_switches(&self) -> f64 {
        self.figure(|sample| sample.usage.context_switches as f64)
    }
}

type Table = experiment::Table<SumCase, Strategy, SumSample>;

impl Table {
    /// Returns the time of a row as a part of the plain thread's time, if that was measured.
    fn to_sync(&self, line: &Line) -> Option<f64> {
        let sync = self.lines.iter().find(|line| line.subject == Strategy::Sync)?;
        Some(line.seconds() / sync.seconds())
    }
}

fn measure(args: &SumArgs) -> Result<Report, Failure> {
    let storage = crate::storage_under(&args.path)?;
    let mut notes = Notes::default();
    if !args.tcp {
        notes.if_in_memory(&storage, &args.path, "cold reads do not read a disk");
    }
    let progress = Progress::new(!args.outputs.quiet);
    let mut tables = Vec::new();
    for bytes in args.sizes() {
        let (source, caches) = if args.tcp {
            (Source::Tcp { bytes, message: args.message }, vec![None])
        } else {
            (file(args, bytes, &progress)?, args.caches().into_iter().map(Some).collect())
        };
        for cache in caches {
            let case = SumCase { cache, bytes };
            tables.push(table(args, case, &source, &progress, &mut notes)?);
        }
    }
    Ok(report::of(args, Machine::of(&storage), &tables, notes))
}

fn file(args: &SumArgs, bytes: u64, progress: &Progress) -> Result<Source, Failure> {
    let spec = TargetSpec {
        path: args.path.clone(),
        size: Some(bytes),
        block: 1,
        seed: args.seed,
        ..TargetSpec::default()
    };
    let target = Target::prepare(&spec, progress)?;
    if target.missing_bytes > 0 {
        let (path, present) = (args.path.display(), size(target.file_bytes));
        return fail(format!("{path}: too small: {present}, but --sizes has {}", size(bytes)));
    }
    Ok(Source::File(target))
}

/// Measures all strategies in turns.
fn table(
    args: &SumArgs,
    case: SumCase,
    source: &Source,
    progress: &Progress,
    notes: &mut Notes,
) -> Result<Table, Failure> {
    let mut table = Table::new(case, args.strategies());
    let bar = progress.runs(args.rounds.total() * table.lines.len());
    for round in args.rounds.all() {
        turns(round, &mut table.lines, &bar, |strategy| {
            source.prepare(case.cache, notes)?;
            let sample = strategies::run(*strategy, source, case.bytes).map_err(|error| {
                let (name, source) = (strategy.name(), case.source());
                Failure::failed(format!("{name} cannot read the {source}: {error}"))
            })?;
            Ok((sample, Latencies::new()))
        })?;
    }
    bar.finish_and_clear();
    check_sums(&table)?;
    Ok(table)
}

/// Fails if two sums differ: then one strategy has read other bytes.
fn check_sums(table: &Table) -> Result<(), Failure> {
    match experiment::disagreement(&table.lines, |sample| Some(sample.sum)) {
        None => Ok(()),
        Some([(first, expected), (other, sum)]) => fail(format!(
            "the sums differ: {} computed {expected} and {} computed {sum} from the same bytes",
            first.name(),
            other.name()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(strategy: Strategy, sums: &[u64]) -> Line {
        let sample = |&sum| SumSample { usage: Usage { seconds: 1.0, ..Usage::default() }, sum };
        Line { samples: sums.iter().map(sample).collect(), ..Line::new(strategy) }
    }

    #[test]
    fn different_sums_fail_and_name_both_strategies() {
        let case = SumCase { cache: Some(Cache::Warm), bytes: 1 };
        let table = |last| Table {
            case,
            lines: vec![line(Strategy::Sync, &[7, 7]), line(Strategy::Fibers, &[7, last])],
        };
        assert!(check_sums(&table(7)).is_ok());
        let failure = check_sums(&table(8)).unwrap_err();
        assert_eq!(failure.status, cringle_report::failure::FAILED);
        for word in ["sync", "fibers", "7", "8"] {
            assert!(failure.message.contains(word), "{failure}");
        }
    }
}
