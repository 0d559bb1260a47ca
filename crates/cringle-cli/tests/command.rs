//! The manner of the command: statuses, signals, pipes, help.

mod common;

use common::*;
use std::process::{Child, Stdio};

#[test]
fn wrong_usage_is_status_2_with_a_word_why() {
    let place = place("usage");
    for (args, why) in [
        (&["bench", "disk", "--profile", "nonsense"][..], "nonsense"),
        (&["bench", "disk", "--block", "4x"], "64KiB"),
        (&["bench", "disk", "--block", "12"], "multiple of 8"),
        (&["bench", "disk", "--qd", "0"], "count from 1"),
        (&["bench", "disk", "--ops", "1", "--seconds", "1"], "cannot be used with"),
        (&["bench", "disk", "--block", "64", "--size", "1m"], "O_DIRECT"),
        (&["bench", "batch", "low", "x", "--workers", "0"], "count from 1"),
        (&["nothing"], "nothing"),
    ] {
        let output = cringle(&place).args(args).output().unwrap();
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(why), "{args:?}: {err}");
    }
}

#[test]
fn a_path_that_is_not_there_is_status_1() {
    let place = place("missing");
    let output = cringle(&place).args(["bench", "disk", "no/such/place"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(texts(&output).1.contains("no/such/place"));
}

/// Starts a benchmark that would take an hour, and returns when its file is there.
fn started(place: &std::path::Path, profile: &str) -> Child {
    let mut command = cringle(place);
    command.args(["bench", "disk", "--size", "16m", "--seconds", "3600", "--qd", "4"]);
    command.args(["--strategies", "fibers", "--profile", profile]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let descriptors = format!("/proc/{}/fd", child.id());
    let has_file = || {
        std::fs::read_dir(&descriptors).unwrap().flatten().any(|entry| {
            std::fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(place))
        })
    };
    while !has_file() {
        std::thread::yield_now();
    }
    child
}

#[test]
fn an_interruption_is_status_130_and_leaves_no_file() {
    for (name, profile) in [("interrupt", "direct"), ("interrupt-wal", "wal")] {
        let place = std::fs::canonicalize(place(name)).unwrap();
        let child = started(&place, profile);
        let pid = i32::try_from(child.id()).unwrap();
        // SAFETY: a plain system call; the child is not waited for yet, so the number is its.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        assert!(texts(&output).1.contains("interrupted"));
        assert!(is_empty(&place));
    }
}

#[test]
fn even_a_killed_benchmark_leaves_no_file() {
    let place = std::fs::canonicalize(place("killed")).unwrap();
    let mut child = started(&place, "cached");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_empty(&place));
}

#[test]
fn a_closed_pipe_is_no_complaint() {
    let place = place("pipe");
    for args in [&["bench", "disk", "--help"][..], &["completions", "zsh"], &["man"]] {
        let mut child = cringle(&place)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(texts(&output).1, "", "{args:?}");
    }
    let mut command = small_disk(&place);
    command.args(["--strategies", "sync", "--profile", "cached"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), texts(&output).1), (Some(0), String::new()));
}

#[test]
fn completions_and_manual_pages_know_the_commands() {
    let place = place("shells");
    for shell in ["bash", "zsh", "fish"] {
        let output = cringle(&place).args(["completions", shell]).output().unwrap();
        assert!(texts(&output).0.contains("profile"), "{shell}");
    }
    let output = cringle(&place).args(["man"]).output().unwrap();
    assert!(texts(&output).0.contains("cringle"));
    assert!(cringle(&place).args(["man", "--all", "pages"]).status().unwrap().success());
    let page = std::fs::read_to_string(place.join("pages/cringle-bench-disk.1")).unwrap();
    assert!(page.contains("wal"));
}

#[test]
fn help_teaches_by_examples() {
    let place = place("help");
    for command in ["disk", "batch", "cp"] {
        let output = cringle(&place).args(["bench", command, "--help"]).output().unwrap();
        assert!(texts(&output).0.contains("Examples:"), "{command}");
    }
}

#[test]
fn colours_are_there_when_asked_for() {
    let place = place("colours");
    let args = ["--strategies", "sync", "--profile", "cached"];
    let output = small_disk(&place).args(args).args(["--color", "always"]).output().unwrap();
    assert!(texts(&output).0.contains('\u{1b}'));
}
