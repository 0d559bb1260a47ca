//! What the functions of threads do, with the library as without.

mod common;

use common::{compile, compile_with, library, parts};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const CANNOT_TEST: i32 = 77;

/// Checks that the case is right without the library and with it, and how it reports then.
fn check(case: &str, report: impl Fn(&str) -> bool) {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile("semantics", folder.path()) else { return };
    let plain = Command::new(&program).arg(case).env_remove("LD_PRELOAD").output().unwrap();
    if plain.status.code() == Some(CANNOT_TEST) {
        println!("skipped: {}", parts(&plain).1);
        return;
    }
    assert_eq!(parts(&plain), (Some(0), "done\n".into(), "".into()), "without the library");
    let served = Command::new(&program).arg(case).env("LD_PRELOAD", library()).output().unwrap();
    let (status, lines, errors) = parts(&served);
    assert_eq!((status, lines.as_str()), (Some(0), "done\n"), "{errors}");
    assert!(report(&errors), "{errors}");
}

#[test]
fn signals_reach_threads_wherever_they_are() {
    check("signals", str::is_empty);
}

#[test]
fn cancels_reach_threads_of_their_own() {
    check("cancels", str::is_empty);
}

#[test]
fn children_have_the_mask_of_their_thread() {
    check("children", str::is_empty);
}

#[test]
fn default_attributes_and_times_before_the_epoch_count() {
    check("attributes", str::is_empty);
}

#[test]
fn main_and_a_thread_wait_for_a_condition_in_turns() {
    check("turns", str::is_empty);
}

#[test]
fn threads_that_hold_a_mutex_nearly_always_give_it_to_others() {
    check("starving", str::is_empty);
}

#[test]
fn program_may_take_all_keys() {
    check("keys", |errors| errors.contains("no key is left"));
}

const STAY: &str = "the threads of this program stay threads of the system: ";

#[test]
fn threads_stay_threads_of_the_system_without_proc() {
    check("without-proc", |errors| errors.contains(STAY) && errors.contains("mount /proc"));
}

#[test]
fn limit_of_processes_is_reported_with_the_remedy() {
    let has_remedy = |errors: &str| errors.contains("raise `ulimit -u`");
    check("limited", |errors| {
        errors.contains(STAY) && has_remedy(errors) && !errors.contains("install!")
    });
}

#[test]
fn constructor_of_a_loaded_library_may_create_the_first_thread() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    let options = ["-shared", "-fPIC", "-DLIBRARY"];
    let loaded = compile_with("constructor", path("constructor.so"), &options);
    let (Some(loaded), Some(program)) = (loaded, compile("constructor", folder.path())) else {
        return;
    };
    fs::write(path("notes"), "").unwrap();
    for preload in [PathBuf::new(), library()] {
        let mut run = Command::new(&program);
        run.arg(&loaded).env("LD_PRELOAD", preload).env("CRINGLE_NOTES", path("notes"));
        let expected = (Some(0), "constructor's\nmain's\n".into(), "".into());
        assert_eq!(parts(&run.output().unwrap()), expected);
    }
    let notes = fs::read_to_string(path("notes")).unwrap();
    let words = notes.lines().filter_map(|line| line.split('\t').next());
    assert_eq!(words.collect::<Vec<_>>(), ["loaded", "constructor", "fiber"]);
}
