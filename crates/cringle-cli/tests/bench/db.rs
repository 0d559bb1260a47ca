//! `cringle bench db` as a user runs it.

use crate::common::*;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A tree of 2 MiB in a pool of 512 KiB, 300 transactions, one round, without fio.
fn small_db(place: &Path) -> Command {
    let mut command = cringle(place);
    command.args(["bench", "db", "--tree", "2m", "--pool", "512k", "--transactions", "300"]);
    command.args(["--fibers", "8", "--evict-batch", "4", "--repeat", "1", "--no-fio"]);
    command
}

fn of<'r>(report: &'r Value, rung: &str) -> &'r Value {
    runs(report).iter().find(|run| run["rung"] == rung).unwrap_or_else(|| panic!("no {rung}"))
}

/// The names of the rungs that have run. A machine without rings leaves some out, and says so.
fn names(report: &Value) -> Vec<&str> {
    runs(report).iter().map(|run| run["rung"].as_str().unwrap()).collect()
}

#[test]
fn every_rung_reads_and_writes_as_much() {
    let place = place("db");
    let report = json(small_db(&place).arg("--twins"));
    assert_eq!((&report["schema"], &report["benchmark"]), (&1.into(), &"db".into()));
    let posix = of(&report, "posix");
    for run in runs(&report) {
        let rung = run["rung"].as_str().unwrap();
        for field in ["reads", "writes"] {
            let (ours, theirs) = (run[field].as_f64().unwrap(), posix[field].as_f64().unwrap());
            let tolerance = theirs * 0.25 + 64.0;
            assert!(ours > 0.0 && (ours - theirs).abs() <= tolerance, "{rung} {field}: {ours}");
        }
        assert!(run["seconds"].as_f64().unwrap() > 0.0, "{rung}");
    }
    assert!(is_empty(&place), "the tree has no name");
    let left_out = notes(&report).matches(" is left out: ").count();
    assert_eq!(names(&report).len() + left_out, RUNGS.len(), "{report}");
}

const RUNGS: [&str; 11] = [
    "posix",
    "ring",
    "+evict",
    "+fibers",
    "+batch",
    "+registered",
    "threads",
    "tokio",
    "twin+fibers",
    "twin+batch",
    "twin+registered",
];

#[test]
fn the_seed_determines_the_checksum() {
    let place = place("db-seed");
    let checksum = |seed: &str| {
        let report = json(small_db(&place).args(["--rungs", "posix", "--seed", seed]));
        report["checksum"].as_str().unwrap().to_string()
    };
    assert_eq!(checksum("7"), checksum("7"));
    assert_ne!(checksum("7"), checksum("8"));
}

#[test]
fn one_transaction_at_a_time_waits_for_each_page() {
    let place = place("db-calls");
    let report = json(&mut small_db(&place));
    let number = |rung: &str, field: &str| of(&report, rung)[field].as_u64().unwrap();
    assert_eq!(
        number("posix", "system_calls"),
        number("posix", "reads") + number("posix", "writes")
    );
    assert_eq!(number("posix", "evictions"), number("posix", "writes"));
    if names(&report).contains(&"+evict") {
        assert_eq!(number("ring", "system_calls"), number("posix", "system_calls"));
        let (batches, writes) = (number("+evict", "evictions"), number("+evict", "writes"));
        assert!(batches >= writes.div_ceil(4) && batches < writes / 2, "{batches} for {writes}");
    }
}

/// The note of a run in which fibers do not use a ring.
const WITHOUT_RING: &str = "fibers have no ring here";

#[test]
fn fibers_without_a_ring_are_noted() {
    let place = place("db-epoll");
    let mut command = small_db(&place);
    command.args(["--rungs", "+fibers,+registered"]).env("CRINGLE_DRIVER", "epoll");
    let report = json(&mut command);
    assert_eq!(names(&report), ["+fibers", "+registered"]);
    assert!(notes(&report).contains(WITHOUT_RING), "{report}");
}

/// With a queue of one entry each operation has a call of its own; with a larger one they share it.
#[test]
fn submissions_are_batched_from_the_second_rung_of_fibers_on() {
    let place = place("db-batched");
    let report = json(small_db(&place).arg("--twins"));
    if !names(&report).contains(&"twin+batch") || notes(&report).contains(WITHOUT_RING) {
        return println!("skipped: there are no rings: {}", notes(&report));
    }
    let per_operation = |rung: &str| {
        let number = |field: &str| of(&report, rung)[field].as_f64().unwrap();
        number("system_calls") / (number("reads") + number("writes"))
    };
    for (single, batched) in
        [("+fibers", "+batch"), ("+fibers", "+registered"), ("twin+fibers", "twin+batch")]
    {
        let (single, batched) = (per_operation(single), per_operation(batched));
        assert!(single >= 1.0 && batched < 0.9 * single, "{single} and {batched}");
    }
}

/// The pool is discarded at the end of each run, and the tree is recovered from the log.
#[test]
fn durable_updates_survive_the_loss_of_the_pool() {
    let place = place("db-durable");
    let report = json(small_db(&place).args(["--durable", "--transactions", "200"]));
    assert_eq!(report["durable"], true);
    let ran = names(&report);
    for rung in ["posix", "threads", "tokio", "+registered"] {
        let left_out = notes(&report).contains(&format!("{rung} is left out"));
        assert!(left_out || ran.contains(&rung), "{rung}: {report}");
    }
    assert!(is_empty(&place), "tree and log have no names");

    let mut command = small_db(&place);
    let report = json(command.args(["--durable", "--rungs", "posix,twin+batch"]));
    assert_eq!(names(&report), ["posix"]);
    assert!(notes(&report).contains("twin+batch is left out: with --durable"));
    let output = small_db(&place).args(["--durable", "--twins"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_report_has_a_table_and_explains_each_rung() {
    let place = place("db-report");
    let output = small_db(&place).args(["--repeat", "2", "--quiet"]).output().unwrap();
    let (out, err) = texts(&output);
    assert!(output.status.success() && err.is_empty(), "{err}");
    for text in ["B-tree of 2 MiB in a pool of 512 KiB", "tx/s", "× posix", "calls/tx", "p99 µs"]
    {
        assert!(out.contains(text), "{text} in {out}");
    }
    assert!(out.contains("posix: ") && out.contains("A transaction reads"), "{out}");
    for rung in RUNGS.iter().filter(|rung| !rung.starts_with("twin")) {
        let left_out = out.contains(&format!("{rung} is left out"));
        assert!(left_out || out.contains(&format!("{rung}: ")), "{rung} in {out}");
    }
    assert!(!out.contains("twin+"), "{out}");
}

#[test]
fn sizes_that_cannot_work_are_refused_with_the_remedy() {
    let place = place("db-refused");
    std::fs::write(place.join("file"), "x").unwrap();
    for (args, status, remedy) in [
        (&["--pool", "2m"][..], 2, "choose a smaller --pool"),
        (&["--pool", "64k"], 2, "choose a larger --pool"),
        (&["--tree", "64k"], 2, "--tree must be at least 256 KiB"),
        (&["--transactions", "0"], 2, "'--transactions <N>': 0 is not in 1.."),
        (&["--rungs", "ladder"], 2, "possible values: posix, ring, +evict"),
        (&["file"], 2, "not a directory; give one"),
        (&["nothing"], 1, "give a directory"),
        (&["--tree", "900t", "--pool", "1g"], 2, "less than 16 TiB"),
    ] {
        let output = small_db(&place).args(args).output().unwrap();
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {err}");
        assert!(err.contains(remedy), "{args:?}: {err}");
    }
}

#[test]
fn fio_performs_the_same_mix() {
    let place = place("db-fio");
    let mut command = cringle(&place);
    command.args(["bench", "db", "--tree", "8m", "--pool", "2m", "--transactions", "500"]);
    command.args(["--fibers", "8", "--evict-batch", "4", "--repeat", "1", "--rungs", "posix,fio"]);
    let report = json(&mut command);
    if notes(&report).contains("fio is not installed") {
        return println!("skipped: there is no fio");
    }
    assert!(report["fio_iops"].as_f64().unwrap() > 0.0, "{report}");
    let ratio = &report["medians"][0]["ratios"]["iops_to_fio"];
    assert!(ratio.as_f64().unwrap() > 0.0, "{report}");
}

#[test]
fn help_explains_every_rung() {
    let place = place("db-help");
    let output = cringle(&place).args(["bench", "db", "--help"]).output().unwrap();
    let (out, _) = texts(&output);
    let ladder = RUNGS.iter().filter(|rung| !rung.starts_with("twin"));
    for rung in ladder.chain(&["twin+…", "fio"]) {
        assert!(out.contains(&format!("\n  {rung} ")), "{rung} in {out}");
    }
}
