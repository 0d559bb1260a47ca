//! `cringle bench all` as a user runs it.

use crate::common::*;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

fn all(place: &Path, arguments: &[&str]) -> Command {
    let mut command = cringle(place);
    command.args(["bench", "all", "--quick", "--repeat", "1"]).args(arguments);
    command
}

fn list<'v>(report: &'v Value, field: &str) -> &'v Vec<Value> {
    report[field].as_array().unwrap()
}

#[test]
fn every_question_gets_verdicts_and_removes_its_data() {
    let place = place("all");
    let report = json(&mut all(&place, &[]));
    assert_eq!((&report["schema"], &report["benchmark"]), (&1.into(), &"all".into()));
    assert!(notes(&report).contains("--quick"));
    for done in list(&report, "experiments") {
        assert!(done["error"].is_null(), "{done}");
        assert!(done["seconds"].as_f64().unwrap() > 0.0);
        assert!(!runs(&done["report"]).is_empty(), "{}", done["command"]);
    }
    for question in ["reads", "cached", "sums", "copies"] {
        let verdicts = list(&report, "verdicts").iter().filter(|one| one["question"] == question);
        assert!(verdicts.count() > 0, "{question}");
    }
    for verdict in list(&report, "verdicts") {
        let one = |field: &str| verdict[field].as_str().unwrap();
        let beside = if one("winner") == one("plain") { one("ours") } else { one("plain") };
        assert!(one("why").contains(one("winner")), "{verdict}");
        assert!(one("why").contains(beside), "{verdict}");
        assert!(verdict["winner_to_next"].as_f64().unwrap() >= 1.0, "{verdict}");
        assert!(verdict["winner_to_plain"].as_f64().unwrap() >= 1.0, "{verdict}");
        assert!(verdict["ours_to_winner"].as_f64().unwrap() <= 1.0, "{verdict}");
    }
    assert!(is_empty(&place));
}

#[test]
fn the_summary_follows_the_tables() {
    let place = place("all-table");
    let output = all(&place, &["--only", "sums", "--json", "results"]).output().unwrap();
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    let at = |words: &str| out.find(words).unwrap_or_else(|| panic!("{words} in {out}"));
    assert!(at("1 of 2: cringle bench sum --sizes 64k") < at("× the plain thread's time"));
    assert!(at("× the plain thread's time") < at("2 of 2: cringle bench sum --tcp"));
    assert!(at("2 of 2") < at("who won here"));
    assert!(out[at("who won here")..].contains("sums, warm file: "), "{out}");
    assert!(!out.contains("cringle bench disk"));
    let saved: Value =
        serde_json::from_slice(&std::fs::read(place.join("results")).unwrap()).unwrap();
    assert_eq!(list(&saved, "experiments").len(), 2);
}

#[test]
fn a_failed_experiment_does_not_stop_the_others() {
    let place = place("all-failing");
    let programs = place.join("bin");
    std::fs::create_dir(&programs).unwrap();
    std::fs::write(programs.join("cp"), "#!/bin/sh\necho no rope left >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(programs.join("cp"), PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let data = place.join("data");
    std::fs::create_dir(&data).unwrap();
    let arguments = ["--only", "copies,cached", "--json", "-", "data"];
    let output = all(&place, &arguments).env("PATH", path).output().unwrap();
    let (out, err) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("cringle bench cp") && err.contains("an experiment failed"), "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let errors: Vec<_> = list(&report, "experiments").iter().map(|one| &one["error"]).collect();
    assert!(errors[0].is_null() && errors[1].as_str().unwrap().contains("cp"), "{errors:?}");
    let verdicts = list(&report, "verdicts");
    assert!(verdicts.iter().any(|one| one["question"] == "cached"));
    // A tool that failed cannot win.
    assert!(verdicts.iter().all(|one| one["winner"] != "cp"), "{verdicts:?}");
    assert!(is_empty(&data));
}

#[test]
fn an_interruption_removes_all_files() {
    let place = place("all-interrupted");
    let mut command = all(&place, &["--only", "copies", "--repeat", "1000"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while is_empty(&place) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was interrupted");
        std::thread::yield_now();
    }
    let pid = i32::try_from(child.id()).unwrap();
    // SAFETY: `kill` takes no pointer; the child is not reaped yet, so the number is its own.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", texts(&output).1);
    assert!(is_empty(&place));
}

/// After SIGKILL of the program, its experiment gets a signal, removes its files, and ends.
#[test]
fn an_experiment_ends_with_its_killed_parent() {
    let place = place("all-killed");
    let mut command = all(&place, &["--only", "copies", "--repeat", "1000"]);
    // The experiment writes its tables to the same pipe.
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    while is_empty(&place) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGKILL));
    assert!(is_empty(&place));
}

#[test]
fn contradictions_are_refused() {
    let place = place("all-refused");
    std::fs::write(place.join("file"), "").unwrap();
    for (arguments, status, word) in [
        (&["--repeat", "0"][..], 2, "--repeat"),
        (&["--only", "riddles"], 2, "riddles"),
        (&["nothing"], 1, "nothing"),
        (&["file"], 1, "directory"),
        (&["--only", "copies", "--repeat", "1000000"], 1, "--only"),
    ] {
        let output = all(&place, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(texts(&output).1.contains(word), "{arguments:?}: {}", texts(&output).1);
    }
}
