//! The ends of processes, each with the library and without: they are the same.

mod common;

use common::{compile, library, parts};
use std::process::Command;

/// Checks how the case ends with the library, and that it ends so without.
fn check(case: &str, status: i32, lines: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile("ends", folder.path()) else { return };
    let expected =
        (Some(status), lines.iter().map(|line| format!("{line}\n")).collect(), "".into());
    let plain = Command::new(&program).arg(case).env_remove("LD_PRELOAD").output().unwrap();
    assert_eq!(parts(&plain), expected, "without the library");
    let served = Command::new(&program).arg(case).env("LD_PRELOAD", library()).output().unwrap();
    assert_eq!(parts(&served), expected);
}

#[test]
fn process_outlives_its_main_until_the_last_fiber() {
    let lines = ["handler", "destructor", "signal", "thread", "exit"];
    check("before-a-fiber", 0, &lines);
}

#[test]
fn process_outlives_its_main_until_the_last_thread() {
    let lines = ["handler", "destructor", "signal", "thread", "exit"];
    check("before-a-thread", 0, &lines);
}

#[test]
fn program_without_threads_ends_with_main() {
    check("alone", 0, &["exit"]);
}

#[test]
fn forked_child_ends_with_its_last_thread() {
    check("child", 2, &["thread of the child", "child 0"]);
}
