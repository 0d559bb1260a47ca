//! The ends of processes, each with the library and without: they are the same.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The library that cargo has built with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its path");
    let library = test.with_file_name("libcringle_preload.so");
    assert!(library.exists(), "{}: not built", library.display());
    library
}

/// Compiles `ends.c`; `None` if there is no C compiler.
fn compile(folder: &Path) -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/ends.c");
    let program = folder.join("ends");
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread"]);
    let Ok(status) = compiler.arg("-o").arg(&program).arg(source).status() else {
        let is_required = std::env::var_os("CRINGLE_TOOLS").is_some_and(|it| it == "required");
        assert!(!is_required, "there is no `cc`: install it");
        println!("skipped: there is no `cc`");
        return None;
    };
    assert!(status.success());
    Some(program)
}

fn parts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Checks how the case ends with the library, and that it ends so without.
fn check(case: &str, status: i32, lines: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path()) else { return };
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
