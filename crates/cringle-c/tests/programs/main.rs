//! Programs in C that use the library: each case of `tests/c` is a process of its own.
//!
//! They are compiled with all warnings as errors, and with AddressSanitizer and
//! UndefinedBehaviorSanitizer. Cases that fork while another thread allocates, or that run with a
//! preloaded library, are compiled without: the sanitizers' allocator does not support the first,
//! and must be loaded before the second.

mod compiler;
mod package;
mod symbols;

use compiler::{Build, has_compiler};
use std::process::Command;

/// Defines a test for each case.
macro_rules! cases {
    ($build:expr; $($name:ident,)*) => {
        $(#[test]
        fn $name() {
            run_case($build, stringify!($name), &[]);
        })*
    };
}

cases! { Build::Sanitized;
    batch_returns_bytes_of_each_read,
    short_counts_end_and_errors_are_results,
    full_read_is_longer_than_a_call,
    sync_comes_between_the_operations_around_it,
    registered_files_and_buffers_work_and_expire,
    counters_and_versions_are_those_of_the_library,
    submission_of_many_files_reads_each,
    closed_and_invented_engines_are_refused,
    wrong_parameters_are_refused_with_words,
    wrong_pointers_and_counts_are_refused,
    wrong_operations_fail_alone,
    misaligned_direct_read_names_what_is_misaligned,
    invalid_operations_are_explained,
    errors_have_words_with_a_remedy,
    second_close_is_refused,
    one_of_several_closers_closes,
    close_and_submit_in_a_callback_are_refused,
    close_waits_for_callbacks,
    process_exits_with_open_engines,
    closed_engines_leave_no_descriptor,
    cancel_of_a_thread_waits_for_the_function,
    callback_gets_the_number_of_failures,
    callback_submits_the_next,
    full_eventfd_does_not_block_the_engine,
    only_an_eventfd_is_taken_for_one,
    eventfd_reports_each_submission_once,
    accepted_submissions_are_in_flight,
    no_callback_runs_within_another,
    cancel_before_the_start_performs_nothing,
    cancel_during_a_submission_ends_the_rest,
    many_threads_submit_to_several_workers,
    signals_stay_those_of_the_program,
    callback_spawns_a_child_that_signals_end,
    few_descriptors_are_an_error_with_words,
    open_with_any_number_of_descriptors_works_or_fails,
    denied_rings_are_replaced_and_explained,
    driver_is_the_chosen_one,
    watchdog_runs_only_if_the_environment_asks,
    submission_keeps_what_was_registered_when_it_was_accepted,
    results_stay_with_their_operations_while_buffers_are_unregistered,
    many_registered_files_are_found_and_released,
    numbers_of_another_engine_are_refused,
    pieces_are_like_one_call,
    limit_of_file_sizes_leaves_the_bytes_before_it,
    large_and_small_operations_share_an_array,
    cancel_takes_effect_between_pieces,
    each_operation_has_a_completion,
    full_queue_accepts_the_first_operations,
    small_operation_completes_before_a_large_one,
    descriptor_is_readable_while_completions_wait,
    cancelled_operations_end_one_by_one,
    queues_of_a_worker_take_turns,
    operations_are_accepted_or_refused_beside_a_close,
    close_of_the_engine_performs_what_was_accepted,
    wrong_queue_calls_are_refused_with_words,
    callback_submits_to_a_queue_and_does_not_wait,
    queued_operation_keeps_what_was_registered,
}

cases! { Build::Plain;
    many_syncs_need_little_memory,
    child_is_refused_and_opens_its_own,
}

#[test]
fn panics_stay_in_the_library() {
    if !cfg!(debug_assertions) {
        return println!("skipped: the library is built without debug assertions");
    }
    run_case(Build::Sanitized, "panics_stay_in_the_library", &[]);
    run_case(Build::Sanitized, "panic_in_a_queued_operation_is_its_result", &[]);
}

#[test]
fn failing_thread_starts_are_errors() {
    run_case(Build::Plain, "failing_thread_starts_are_errors", &compiler::preloaded());
}

#[test]
fn interrupted_write_of_an_eventfd_is_repeated() {
    // The value is changed in place, and it has one digit.
    run_case(Build::Plain, "interrupted_write_of_an_eventfd_is_repeated", &compiler::preloaded());
}

/// Under `cringle run` the threads are fibers of another copy of the library. Its own workers are
/// threads of the system: as fibers, they would lose their rings.
#[test]
#[cfg(target_env = "gnu")]
fn threads_that_are_fibers_submit() {
    let test = std::env::current_exe().expect("the test knows its path");
    let library = test.with_file_name("libcringle_preload.so");
    assert!(library.exists(), "{}: not built", library.display());
    let preload = [("LD_PRELOAD", library.into_os_string())];
    run_case(Build::Plain, "many_threads_submit_to_several_workers", &preload);
}

#[test]
fn each_case_is_a_test() {
    if !has_compiler() {
        return;
    }
    let listed = Command::new(compiler::cases(Build::Plain)).output().expect("the cases run");
    let listed = String::from_utf8(listed.stdout).expect("names are text");
    for name in listed.lines() {
        let source = include_str!("main.rs");
        assert!(source.contains(&format!(" {name},")) || source.contains(&format!("\"{name}\"")));
    }
    assert!(listed.lines().count() > 30, "{listed}");
}

#[test]
fn random_calls_return_what_is_documented() {
    if !has_compiler() {
        return;
    }
    let from_environment = |name: &str, default: u64| {
        let value = std::env::var(name).ok();
        value.map_or(default, |value| value.parse().expect("a number"))
    };
    let calls = from_environment("CRINGLE_CALLS", 6000);
    let seed = from_environment("CRINGLE_SEED", 1);
    let mut fuzz = Command::new(compiler::fuzz());
    fuzz.args([calls.to_string(), seed.to_string()]);
    println!("{}", compiler::run(&mut fuzz));
}

#[test]
fn header_compiles_as_cplusplus() {
    if !has_compiler() {
        return;
    }
    let mut check = Command::new("c++");
    check.args(["-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    check.args(["-fsyntax-only", "-include"]).arg(compiler::header()).arg("/dev/null");
    compiler::run(&mut check);
}

#[test]
fn example_reads_blocks_of_a_file() {
    if !has_compiler() {
        return;
    }
    let example = compiler::example("randread", &[]);
    let mut command = Command::new(&example);
    let printed = compiler::run(command.arg(&example).arg("0.05"));
    assert!(printed.contains(" reads of 4096 bytes in "), "{printed}");
    let failed = Command::new(&example).arg("/nonexistent").output().expect("the example runs");
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
}

/// The first program of the book's chapter.
#[test]
fn program_of_the_book_runs() {
    if !has_compiler() {
        return;
    }
    let chapter = include_str!("../../../../docs/book/src/c.md");
    let program = chapter.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
    let program = compiler::of_text("chapter", program.expect("the chapter has a program"));
    compiler::run(&mut Command::new(program));
}

#[test]
fn example_of_libuv_sums_a_file() {
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", "libuv"]).output();
    let flags = flags.ok().filter(|flags| flags.status.success());
    let Some(flags) = flags.filter(|_| has_compiler()) else {
        return println!("skipped: there is no libuv1-dev");
    };
    let flags = String::from_utf8(flags.stdout).expect("flags are text");
    let example = compiler::example("libuv", &flags.split_whitespace().collect::<Vec<_>>());
    let bytes = std::fs::read(&example).expect("the example is a file");
    let sum = bytes.iter().fold(0_u64, |sum, &byte| sum + u64::from(byte));
    let printed = compiler::run(Command::new(&example).arg(&example));
    assert_eq!(printed, format!("{} bytes, sum {sum}\n", bytes.len()));
}

fn run_case(build: Build, name: &str, environment: &[(&str, std::ffi::OsString)]) {
    if !has_compiler() {
        return;
    }
    let mut command = Command::new(compiler::cases(build));
    command.arg(name).envs(environment.iter().map(|(name, value)| (name, value)));
    println!("{}", compiler::run(&mut command));
}
