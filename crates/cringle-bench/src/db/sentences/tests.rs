//! The sentences follow from the figures.

use super::*;
use crate::Bench;
use crate::db::DbArgs;
use crate::db::pool::Counts;
use crate::db::tree::Tree;
use crate::meter::Usage;

fn args(more: &[&str]) -> &'static DbArgs {
    let line = ["db", "--tree", "8m", "--pool", "1m", "--fibers", "8", "--transactions", "1000"];
    let Ok(Bench::Db(args)) = Bench::parse(&[&line[..], more].concat()) else {
        panic!("{line:?} {more:?} is not a command line of bench db")
    };
    Box::leak(args)
}

fn findings(seconds: &[(Rung, f64)]) -> DbFindings<'static> {
    let counts = Counts { reads: 900, writes: 800, evictions: 40, ..Counts::default() };
    let line = |&(rung, seconds): &(Rung, f64)| {
        let usage = Usage { seconds, user_seconds: 0.1, ..Usage::default() };
        let sample = || RungSample { usage, counts, calls: Some(1700) };
        let samples = (0..ENOUGH_ROUNDS).map(|_| sample()).collect();
        Line { samples, ..Line::new(rung) }
    };
    DbFindings {
        args: args(&[]),
        tree: Tree::within(1000, 1),
        without_ring: false,
        checksum: 0,
        lines: seconds.iter().map(line).collect(),
        fio: vec![3400.0],
    }
}

fn words(seconds: &[(Rung, f64)]) -> String {
    all(&findings(seconds)).join("\n")
}

#[test]
fn a_step_that_helps_is_explained_by_its_figures() {
    let text = words(&[(Rung::Posix, 2.0), (Rung::Ring, 2.0), (Rung::Evict, 1.0)]);
    for part in [
        "posix: 500 tx/s. A transaction reads 0.90 pages and writes 0.80 back",
        "takes 2,000 µs, of which 100 µs are CPU time",
        "ring: 500 tx/s, 1.00 × posix.",
        "does not help here: the time is the disk's",
        "+evict: 1,000 tx/s, 2.00 × ring. 20.0 changed pages are written back by one call",
        "The reads are left",
        "On this machine ring does not raise the rate",
        "fio performs 3,400 reads and writes a second at the same mix; +evict performs 1,700, 0.50 \
         of that.",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_step_that_does_not_help_is_named() {
    let rungs = [(Rung::Ring, 1.0), (Rung::Evict, 1.2), (Rung::Fibers, 1.2)];
    let text = words(&rungs);
    for part in [
        "while a batch is written, no page is read",
        "this disk performs one operation at a time",
        "On this machine +evict, +fibers do not raise the rate",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!words(&[(Rung::Ring, 1.0), (Rung::Evict, 0.5)]).contains("On this machine"));
}

#[test]
fn a_rung_without_its_base_has_no_ratio() {
    let text = words(&[(Rung::Fibers, 0.1)]);
    assert!(text.contains("+fibers: 10,000 tx/s. Up to 8 transactions"), "{text}");
}

#[test]
fn rounds_that_differ_give_no_verdict() {
    let mut findings = findings(&[(Rung::Posix, 1.0), (Rung::Ring, 0.5)]);
    assert_eq!(findings.change(Rung::Ring, Rung::Posix), Some(Change::Rise));
    assert_eq!(findings.change(Rung::Posix, Rung::Ring), Some(Change::Fall));
    let one = &findings.lines[0].samples[0];
    let mut fast = RungSample { usage: one.usage, counts: one.counts, calls: None };
    fast.usage.seconds = 0.4;
    findings.lines[0].samples.push(fast);
    let one = &findings.lines[1].samples[0];
    let more = RungSample { usage: one.usage, counts: one.counts, calls: None };
    findings.lines[1].samples.push(more);
    assert_eq!(findings.change(Rung::Ring, Rung::Posix), Some(Change::Unclear));
    let text = all(&findings).join("\n");
    assert!(
        text.contains("It rose in some rounds and fell in others")
            && !text.contains("On this machine"),
        "{text}"
    );
}

#[test]
fn batches_and_registrations_compare_the_cpu_time() {
    let rungs =
        [(Rung::Posix, 8.0), (Rung::Fibers, 1.0), (Rung::Batch, 1.0), (Rung::Registered, 0.1)];
    let text = words(&rungs);
    for part in [
        "+batch: 1,000 tx/s, 1.00 × +fibers. One call submits what the fibers ask for in a turn: \
         1.70 calls instead of 1.70 for each transaction, and 100 µs of CPU time instead of 100. \
         It does not help here: the processor idles for a part of the time",
        "+registered: 10,000 tx/s, 10.00 × +batch.",
        "100 µs of CPU time instead of 100. The rate rose, although the processor was idle",
        "At the end of the ladder, +registered is 80.00 × posix.",
        "On this machine +batch does not raise the rate",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_busy_processor_was_the_limit() {
    let mut findings = findings(&[(Rung::Fibers, 1.0), (Rung::Batch, 0.5)]);
    assert!(!all(&findings).join("\n").contains("was the limit"));
    for sample in &mut findings.lines[0].samples {
        sample.usage.user_seconds = 0.95;
    }
    assert!(all(&findings)[1].ends_with("The processor was the limit."));
    findings.without_ring = true;
    let text = all(&findings).join("\n");
    assert!(!text.contains("was the limit") && !text.contains("One call submits"), "{text}");
    assert!(text.contains("threads perform the same calls as on +fibers: 1.70 calls"), "{text}");
}

#[test]
fn few_rounds_show_no_cause() {
    let rungs = [(Rung::Posix, 2.0), (Rung::Ring, 2.0), (Rung::Evict, 1.0), (Rung::Fibers, 2.0)];
    let mut findings = findings(&rungs);
    assert!(!all(&findings).join("\n").contains("Fewer than"));
    findings.lines.iter_mut().for_each(|line| line.samples.truncate(2));
    let text = all(&findings).join("\n");
    for cause in ["does not help", "The reads are left", "keeps this storage busy", "not raise"] {
        assert!(!text.contains(cause), "{cause} in {text}");
    }
    assert!(text.contains("+evict: 1,000 tx/s, 2.00 × ring."), "{text}");
    assert!(
        text.contains("Fewer than 3 rounds do not show whether a difference is noise"),
        "{text}"
    );
}

#[test]
fn a_twin_is_what_its_rung_is_measured_by() {
    let rungs =
        [(Rung::Batch, 1.0), (Rung::Threads, 4.0), (Rung::Tokio, 8.0), (Rung::TwinBatch, 0.8)];
    let text = words(&rungs);
    for part in [
        "twin+batch: 1,250 tx/s; +batch performs 0.80 of that. The same engine",
        "threads: 250 tx/s. 8 threads",
        "tokio: 125 tx/s, 0.50 × threads. 8 tasks on one thread",
        "The way to the pool and back comes on top",
        "+batch is 4.00 × threads, 8.00 × tokio.",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("On this machine"), "{text}");
}

#[test]
fn durable_rungs_say_who_shares_a_flush() {
    let mut findings = findings(&[(Rung::Evict, 2.0), (Rung::Fibers, 1.0), (Rung::Tokio, 1.0)]);
    assert!(!all(&findings).join("\n").contains("flush"));
    findings.args = args(&["--durable"]);
    let text = all(&findings);
    for (line, end) in [
        (0, "Each transaction waits for a write and a flush of the log of its own."),
        (1, "share a write and a flush of the log, which blocks no other fiber."),
        (2, "those that wait at the same time share a write and a flush."),
    ] {
        assert!(text[line].ends_with(end), "{}", text[line]);
    }
    assert!(title(&findings).starts_with("1,000 durable transactions"));
}
