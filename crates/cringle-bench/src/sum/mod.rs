//! `cringle bench sum`: sums all bytes of a file or a connection, 32 KiB at a time, one read after
//! another. Nothing else is in flight, so this shows the cost of a runtime that cannot win: the
//! main figure is the time of each strategy as a part of a plain thread's time.
//!
//! Every strategy opens its source and starts its runtime before the clock starts, and stops the
//! clock after the last byte. All sums must be equal.

mod args;
mod feed;
mod report;
mod sentences;
mod source;
mod strategies;

pub use args::SumArgs;

use crate::meter::Usage;
use crate::notes::Notes;
use crate::progress::Progress;
use crate::target::{Target, TargetSpec};
use args::{Cache, Strategy};
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::Machine;
use cringle_report::units::size;
use serde::Serialize;
use source::{Kind, Source};

/// Bytes of one read.
const BUFFER_BYTES: usize = 32 << 10;

/// The source of a table, and the state of its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    kind: Kind,
    cache: Option<Cache>,
    bytes: u64,
}

/// One pass of a strategy over its source.
#[derive(Clone, Debug)]
struct Sample {
    usage: Usage,
    sum: u64,
}

/// A row of a table.
struct Line {
    strategy: Strategy,
    /// One for each round, in order.
    samples: Vec<Sample>,
}

impl Line {
    fn median(&self, of: impl Fn(&Usage) -> f64) -> f64 {
        let values = self.samples.iter().map(|sample| of(&sample.usage));
        cringle_report::stats::median(values).unwrap_or(f64::NAN)
    }

    fn seconds(&self) -> f64 {
        self.median(|usage| usage.seconds)
    }
}

struct Block {
    cell: Cell,
    lines: Vec<Line>,
}

impl Block {
    /// Returns the time of a row as a part of the plain thread's time, if that was measured.
    fn to_sync(&self, line: &Line) -> Option<f64> {
        let sync = self.lines.iter().find(|line| line.strategy == Strategy::Sync)?;
        Some(line.seconds() / sync.seconds())
    }
}

struct Findings {
    machine: Machine,
    message_bytes: u64,
    blocks: Vec<Block>,
    notes: Vec<String>,
}

pub(crate) fn run(args: &SumArgs, verbose: bool) -> Result<(), Failure> {
    if let Some(bytes) = args.feed {
        let feed = if args.udp { feed::feed_datagrams } else { feed::feed };
        return feed(bytes, args.message()).map_err(Failure::from);
    }
    args.validate()?;
    crate::begin(verbose);
    let storage = crate::storage_under(&args.path)?;
    let mut notes = Notes::default();
    if let Some(memory) = storage.in_memory().filter(|_| !args.tcp && !args.udp) {
        notes.add(format!("{} is {memory}: cold reads do not read a disk", args.path.display()));
    }
    let progress = Progress::new(!args.quiet && !args.outputs.use_stdout());
    let mut blocks = Vec::new();
    for bytes in args.sizes() {
        let message = args.message();
        let (kind, mut source) = match (args.tcp, args.udp) {
            (true, _) => (Kind::Tcp, Source::Tcp { bytes, message }),
            (_, true) => (Kind::Udp, Source::Udp { bytes, message }),
            _ => {
                blocks.extend(files(args, bytes, &progress, &mut notes)?);
                continue;
            }
        };
        let cell = Cell { kind, cache: None, bytes };
        blocks.push(measure(args, cell, &mut source, &progress, &mut notes)?);
    }
    let findings = Findings {
        machine: Machine::of(&storage),
        message_bytes: args.message(),
        blocks,
        notes: notes.all().to_vec(),
    };
    report::write(&findings, &args.outputs)
}

/// Measures a file of this size, in each state of the cache.
fn files(
    args: &SumArgs,
    bytes: u64,
    progress: &Progress,
    notes: &mut Notes,
) -> Result<Vec<Block>, Failure> {
    let spec = TargetSpec {
        path: args.path.clone(),
        size: Some(bytes),
        files: 1,
        block: 1,
        seed: args.seed,
        writes: false,
        destroy: false,
        empty: false,
    };
    let target = Target::prepare(&spec, progress)?;
    if target.missing_bytes > 0 {
        let (path, present) = (args.path.display(), size(target.file_bytes));
        return fail(format!("{path}: too small: {present}, but --sizes has {}", size(bytes)));
    }
    let mut source = Source::File(target);
    let in_state = |cache| {
        let cell = Cell { kind: Kind::File, cache: Some(cache), bytes };
        measure(args, cell, &mut source, progress, notes)
    };
    args.caches().into_iter().map(in_state).collect()
}

/// Measures all strategies in turns, round by round.
fn measure(
    args: &SumArgs,
    cell: Cell,
    source: &mut Source,
    progress: &Progress,
    notes: &mut Notes,
) -> Result<Block, Failure> {
    let start = |strategy| Line { strategy, samples: Vec::new() };
    let mut lines: Vec<Line> = args.strategies().into_iter().map(start).collect();
    let rounds = &args.rounds;
    let bar = progress.runs((rounds.total() * lines.len()) as u64);
    for round in 0..rounds.total() {
        for line in &mut lines {
            bar.set_message(line.strategy.name());
            source.prepare(cell.cache, notes)?;
            let sample = strategies::run(line.strategy, source, cell.bytes).map_err(|error| {
                let name = line.strategy.name();
                Failure::failed(format!("{name} cannot read the {}: {error}", cell.kind.name()))
            })?;
            if rounds.measures(round) {
                line.samples.push(sample);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let block = Block { cell, lines };
    check_sums(&block)?;
    Ok(block)
}

/// Fails if two sums differ: then one strategy has read other bytes.
fn check_sums(block: &Block) -> Result<(), Failure> {
    let all = || {
        let of = |line: &Line| {
            let strategy = line.strategy;
            line.samples.iter().map(move |s| (strategy, s.sum)).collect::<Vec<_>>()
        };
        block.lines.iter().flat_map(of)
    };
    let Some((first, expected)) = all().next() else { return Ok(()) };
    match all().find(|(_, sum)| *sum != expected) {
        None => Ok(()),
        Some((other, sum)) => fail(format!(
            "the sums differ: {} computed {expected} and {} computed {sum} from the same bytes",
            first.name(),
            other.name()
        )),
    }
}

impl Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(strategy: Strategy, sums: &[u64]) -> Line {
        let sample = |&sum| Sample { usage: Usage { seconds: 1.0, ..Usage::default() }, sum };
        Line { strategy, samples: sums.iter().map(sample).collect() }
    }

    #[test]
    fn different_sums_fail_and_name_both_strategies() {
        let cell = Cell { kind: Kind::File, cache: Some(Cache::Warm), bytes: 1 };
        let block = |last| Block {
            cell,
            lines: vec![line(Strategy::Sync, &[7, 7]), line(Strategy::Fibers, &[7, last])],
        };
        assert!(check_sums(&block(7)).is_ok());
        let failure = check_sums(&block(8)).unwrap_err();
        assert_eq!(failure.status, cringle_report::failure::FAILED);
        for word in ["sync", "fibers", "7", "8"] {
            assert!(failure.message.contains(word), "{failure}");
        }
    }
}
