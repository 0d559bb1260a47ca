//! `cringle sim`: seeds pass, are counted, and can be replayed.

mod common;

use common::*;

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
fn threads_that_cannot_start_are_no_failure() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let place = place("sim-no-threads");
    let limited = |count: libc::rlim_t, workers: &str| {
        let mut command = cringle(&place);
        command.args(["sim", "--seeds", "100", "--threads", "50", "--workers", workers]);
        command.uid(NOBODY).gid(NOBODY);
        // SAFETY: the closure only makes a system call.
        unsafe {
            command.pre_exec(move || {
                let limit = libc::rlimit { rlim_cur: count, rlim_max: count };
                match libc::setrlimit(libc::RLIMIT_NPROC, &limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            })
        };
        command.output()
    };
    // The limit counts the user's other processes, too.
    let Ok(plenty) = limited(4096, "1") else {
        return eprintln!("skipped: only root is another user");
    };
    if !plenty.status.success() {
        return eprintln!("skipped: another user cannot reach the command");
    }
    let output = limited(6, "1").unwrap();
    let (out, err) = texts(&output);
    assert!(!err.contains("panicked"), "{err}");
    assert!(out.contains("100 seeds passed") || err.contains("ulimit -u"), "{out}{err}");
    // A simulation whose workers cannot all start ends with a report.
    let output = limited(6, "3").unwrap();
    let (out, err) = texts(&output);
    assert!(!err.contains("panicked"), "{err}");
    let is_reported = err.contains("cannot start a worker thread") || err.contains("ulimit -u");
    assert!(out.contains("100 seeds passed") || is_reported, "{out}{err}");
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
