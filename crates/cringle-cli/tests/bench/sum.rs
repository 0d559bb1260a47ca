//! `cringle bench sum` as a user runs it.

use crate::common::*;
use std::path::Path;
use std::process::Command;

fn sum(place: &Path, arguments: &[&str]) -> Command {
    let mut command = cringle(place);
    command.args(["bench", "sum", "--repeat", "2"]).args(arguments);
    command
}

#[test]
fn every_strategy_computes_the_sum_of_a_file() {
    let place = place("sum-file");
    let bytes = noise(1 << 20);
    std::fs::write(place.join("data"), &bytes).unwrap();
    let expected: u64 = bytes[..999_999].iter().map(|&byte| u64::from(byte)).sum();
    let arguments = ["data", "--sizes", "999999", "--cache", "warm,cold"];
    let report = json(&mut sum(&place, &arguments));
    assert_eq!((&report["schema"], &report["benchmark"]), (&1.into(), &"sum".into()));
    assert_eq!(runs(&report).len(), 2 * 3 * 2);
    for run in runs(&report) {
        assert_eq!(run["sum"], expected, "{run}");
        assert_eq!((&run["bytes"], &run["source"]), (&999_999.into(), &"file".into()));
        for field in ["seconds", "user_s", "system_s", "context_switches"] {
            assert!(run[field].is_number(), "{field} of {run}");
        }
    }
    let count =
        |field: &str, value: &str| runs(&report).iter().filter(|run| run[field] == value).count();
    assert_eq!((count("cache", "warm"), count("cache", "cold")), (6, 6));
    assert_eq!((count("strategy", "sync"), count("strategy", "fibers")), (4, 4));
}

#[test]
fn the_temporary_file_is_removed() {
    let place = place("sum-temporary");
    let report = json(&mut sum(&place, &["--sizes", "64k,100000"]));
    let sums: Vec<_> = runs(&report).iter().map(|run| (&run["bytes"], &run["sum"])).collect();
    assert_eq!(sums.len(), 2 * 3 * 2);
    assert!(
        sums[..6].iter().all(|one| *one == sums[0]) && sums[6..].iter().all(|one| *one == sums[6])
    );
    assert!(sums[0] != sums[6]);
    assert!(is_empty(&place));
}

#[test]
fn the_sum_does_not_depend_on_message_sizes() {
    let place = place("sum-tcp");
    let sums = |message: &str| {
        let report = json(&mut sum(&place, &["--tcp", "--sizes", "300000", "--message", message]));
        assert!(runs(&report).iter().all(|run| run["source"] == "tcp" && run["cache"].is_null()));
        runs(&report).iter().map(|run| run["sum"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    for message in ["7", "300000", "1g"] {
        let all = sums(message);
        assert_eq!(all.len(), 6);
        assert!(all[0] > 0 && all.iter().all(|sum| *sum == all[0]));
    }
}

#[test]
fn the_report_compares_with_the_thread() {
    let place = place("sum-table");
    let output = sum(&place, &["--sizes", "1m", "--strategies", "fibers,sync"]).output().unwrap();
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    assert!(out.contains("fibers take") && out.contains("× the plain thread's time"), "{out}");
    assert!(!out.contains("tokio"));
}

#[test]
fn contradictions_are_refused() {
    let place = place("sum-refused");
    std::fs::write(place.join("data"), noise(1 << 10)).unwrap();
    for (arguments, status, word) in [
        (&["data", "--sizes", "1m"][..], 1, "1 MiB"),
        (&["nothing"], 1, "nothing"),
        (&["--sizes", "0"], 2, "--sizes"),
        (&["--message", "0", "--tcp"], 2, "--message"),
        (&["--tcp", "--cache", "cold"], 2, "--cache"),
        (&["--strategies", "threads"], 2, "threads"),
    ] {
        let output = sum(&place, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(texts(&output).1.contains(word), "{arguments:?}: {}", texts(&output).1);
    }
}
