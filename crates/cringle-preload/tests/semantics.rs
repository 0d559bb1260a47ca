//! What the functions of threads do, with the library as without.

mod common;

use common::{compile, library, parts};
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
