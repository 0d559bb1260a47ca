//! `cringle sim`: seeds pass, are counted, and can be replayed.

use crate::common::*;

#[test]
fn seeds_pass_and_are_counted() {
    let place = place("sim");
    let mut command = cringle(&place);
    let report = json(command.args(["sim", "--seeds", "200", "--start", "77"]));
    assert_eq!((report["schema"].as_u64(), report["start"].as_u64()), (Some(1), Some(77)));
    assert_eq!(report["seeds_passed"], 200);
    assert!(report["seeds_per_second"].as_f64().unwrap() > 0.0 && report["failure"].is_null());
    assert!(report["operations"].as_u64().unwrap() > 1000);
    assert!(report["faults"]["Interrupted"].as_u64().unwrap() > 0);
    assert!(is_empty(&place));
}

#[test]
fn results_do_not_depend_on_the_threads() {
    let place = place("sim-threads");
    let sums = |threads: &str| {
        let mut command = cringle(&place);
        let report = json(command.args(["sim", "--seeds", "100", "--threads", threads]));
        ["operations", "fibers", "faults", "virtual_seconds"].map(|key| report[key].clone())
    };
    assert_eq!(sums("1"), sums("4"));
}

#[test]
fn threads_that_cannot_start_blame_no_seed() {
    let place = tempfile::tempdir().unwrap();
    let mut refused = 0;
    for (count, workers) in (2..9).flat_map(|count| [(count, "1"), (count, "3")]) {
        let Some(mut command) = with_few_threads(place.path(), count) else { return };
        command.args(["sim", "--seeds", "20", "--threads", "50", "--workers", workers]);
        let Ok(output) = command.output() else {
            return eprintln!("skipped: another user cannot run the command");
        };
        let (out, err) = texts(&output);
        assert!(!err.contains("panicked") && !err.contains("to replay it"), "{err}");
        if !out.contains("20 seeds passed") {
            assert!(err.contains("ulimit -u"), "{count}: {out}{err}");
            refused += 1;
        }
    }
    if refused == 0 {
        eprintln!("skipped: this kernel does not refuse the threads");
    }
}

#[test]
fn a_failure_names_the_seed_and_the_replay() {
    let place = place("sim-canary");
    let mut command = cringle(&place);
    let output =
        command.args(["sim", "--seeds", "300", "--start", "100", "--canary", "111"]).output();
    let output = output.unwrap();
    let (out, err) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("cringle sim --seeds 1 --start 111"), "{err}");
    assert!(err.contains("'main' waits for: an unpark"), "{err}");
    assert!(out.contains("seeds passed"), "{out}");
}

#[test]
fn workers_are_chosen_and_part_of_the_replay() {
    let place = place("sim-workers");
    for balance in ["fixed", "moving"] {
        let mut command = cringle(&place);
        command.env("CRINGLE_BALANCE", balance);
        let report = json(command.args(["sim", "--seeds", "50", "--workers", "3"]));
        assert_eq!(report["seeds_passed"], 50);
    }
    let mut command = cringle(&place);
    let output = command.args(["sim", "--seeds", "1", "--workers", "2", "--canary", "0"]).output();
    let (_, err) = texts(&output.unwrap());
    assert!(err.contains("cringle sim --seeds 1 --start 0 --workers 2"), "{err}");
}

#[test]
fn wrong_usage_is_refused() {
    let place = place("sim-usage");
    for args in [["sim", "--seeds", "0"], ["sim", "--threads", "0"], ["sim", "--workers", "0"]] {
        let output = cringle(&place).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
    }
}
