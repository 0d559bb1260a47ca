//! Threads that do what only a thread of the system can do, each with the library and without: the
//! programs cannot tell. With it, the notes say that the threads were fibers that became threads of
//! the system, and why.

mod common;

use common::{compile, library, parts};
use std::fs;
use std::process::Command;

/// Checks what the case prints with the library, that it prints so without, and for which reasons
/// fibers became threads of the system.
fn check(case: &str, lines: &[&str], reasons: &[&str]) {
    check_both("own", case, lines, lines, reasons);
}

/// As [`check`], of the program `state`.
fn check_state(case: &str, reasons: &[&str]) {
    check_both("state", case, &["joined"], &["joined"], reasons);
}

/// As [`check`], of the program `corners`.
fn check_corner(case: &str, lines: &[&str], reasons: &[&str]) {
    check_both("corners", case, lines, lines, reasons);
}

fn check_both(program: &str, case: &str, plain_lines: &[&str], lines: &[&str], reasons: &[&str]) {
    const CANNOT_TEST: i32 = 77;
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(program, folder.path()) else { return };
    let expected = |lines: &[&str]| {
        (Some(0), lines.iter().map(|line| format!("{line}\n")).collect(), String::new())
    };
    let plain = Command::new(&program).arg(case).env_remove("LD_PRELOAD").output().unwrap();
    if plain.status.code() == Some(CANNOT_TEST) {
        println!("skipped: {}", parts(&plain).1);
        return;
    }
    assert_eq!(parts(&plain), expected(plain_lines), "without the library");
    let notes = folder.path().join("notes");
    fs::write(&notes, "").unwrap();
    let mut served = Command::new(&program);
    served.arg(case).env("LD_PRELOAD", library()).env("CRINGLE_NOTES", &notes);
    if case == "fair" {
        served.env("CRINGLE_WORKERS", "1");
    }
    assert_eq!(parts(&served.output().unwrap()), expected(lines));
    let notes = fs::read_to_string(notes).unwrap();
    let mut found: Vec<&str> = notes.lines().filter_map(|line| line.split('\t').next()).collect();
    found.retain(|&reason| !["loaded", "fiber"].contains(&reason));
    for reason in reasons {
        assert!(found.contains(reason), "{reason}: {notes}");
    }
    // The monitor may have found more on a loaded machine.
    found.retain(|&reason| !["computing", "system-call"].contains(&reason));
    assert!(found.iter().all(|reason| reasons.contains(reason)), "{notes}");
}

/// Checks what the case prints with the library and a variable.
fn check_served(program: &str, case: &str, (name, value): (&str, &str), output: &str) {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(program, folder.path()) else { return };
    let mut served = Command::new(&program);
    served.arg(case).env("LD_PRELOAD", library()).env(name, value);
    assert_eq!(parts(&served.output().unwrap()), (Some(0), output.into(), String::new()));
}

#[test]
fn threads_continue_beside_blocking_system_calls() {
    check("blocked", &["exchanged", "joined"], &["system-call"]);
}

#[test]
fn threads_continue_beside_spinning_threads() {
    check("spinning", &["joined"], &["computing"]);
}

#[test]
fn many_waiting_threads_take_few_of_the_system() {
    check_both("own", "many", &["all", "joined"], &["few", "joined"], &[]);
}

#[test]
fn waiting_thread_gets_signals_of_the_process() {
    check("waited", &["joined"], &["signal-wait"]);
}

#[test]
fn handler_runs_on_thread_that_unblocks_its_signal() {
    check("unblocked", &["joined"], &["signal-mask"]);
}

#[test]
fn handlers_run_on_the_stack_of_their_thread() {
    check("stack", &["joined"], &["signal-stack"]);
}

#[test]
fn computing_thread_keeps_its_values() {
    check("computing", &["joined"], &["computing"]);
}

#[test]
fn thread_exits_from_a_thread_of_its_own() {
    check("exits", &["exchanged", "joined"], &["signal-mask", "system-call"]);
}

#[test]
fn thread_of_its_own_forks() {
    let lines = ["child 0", "child 42", "child 0", "joined"];
    check("forks", &lines, &["signal-mask", "computing"]);
}

#[test]
fn mutexes_keep_their_owner() {
    check("mutexes", &["exchanged", "joined"], &["system-call"]);
}

#[test]
fn threads_continue_beside_rings_of_the_program() {
    check("rings", &["exchanged", "joined"], &["system-call"]);
}

#[test]
fn state_of_a_thread_reaches_no_other() {
    check_state("states", &["attributes", "thread-state"]);
}

#[test]
fn robust_and_lending_mutexes_have_owners() {
    check_state("owners", &["mutex"]);
}

#[test]
fn threads_of_two_processes_share_locks() {
    check_state("processes", &["mutex"]);
}

#[test]
fn wait_with_a_mask_gets_signals_of_the_process() {
    check_state("killed", &["signal-mask"]);
}

#[test]
fn wait_with_an_equal_mask_stays_on_the_fiber() {
    check_state("unchanged", &[]);
}

#[test]
fn raw_exit_ends_only_its_thread() {
    check_state("ended", &[]);
}

/// The threads of a program are those of the system if the environment says so.
#[test]
fn environment_leaves_threads_to_the_system() {
    check_served("own", "many", ("CRINGLE_THREADS", "system"), "all\njoined\n");
}

/// Not so without the library: no thread of the system has another one's number.
#[test]
fn thread_tries_the_workers_where_its_peer_may_be_near() {
    check_served("corners", "far", ("CRINGLE_WORKERS", "2"), "moved\n");
}

#[test]
fn calls_that_never_wait_let_others_run() {
    check("fair", &["joined"], &[]);
}

#[test]
fn threads_continue_after_the_process_has_changed_its_user() {
    check("rightless", &["exchanged", "joined"], &[]);
}

#[test]
fn later_threads_have_the_rights_of_main() {
    check_state("rights", &["attributes"]);
}

#[test]
fn interrupted_connect_continues() {
    check_corner("connects", &["exchanged", "joined"], &["system-call"]);
}

#[test]
fn threads_continue_after_all_descriptors_were_closed() {
    let lines = ["exchanged"; 7];
    check_corner("closed", &[&lines[..], &["closed"]].concat(), &[]);
}

#[test]
fn threads_continue_beside_coroutines() {
    check_corner("coroutines", &["exchanged", "joined"], &["computing", "system-call"]);
}

#[test]
fn threads_continue_beside_destructors() {
    let lines = ["exchanged", "exchanged", "joined"];
    check_corner("destructors", &lines, &["computing", "system-call"]);
}

#[test]
fn threads_trace_their_children() {
    check_corner("traces", &["joined"], &["thread-state"]);
}
