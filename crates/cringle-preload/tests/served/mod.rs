//! C programs, each run with the library and without.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The library that cargo has built with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its path");
    let library = test.with_file_name("libcringle_preload.so");
    assert!(library.exists(), "{}: not built", library.display());
    library
}

/// Compiles a program of `tests/c`; `None` if there is no C compiler.
fn compile(name: &str, folder: &Path) -> Option<PathBuf> {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c");
    let source = Path::new(sources).join(name).with_extension("c");
    let program = folder.join(name);
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

/// Checks how a case of a program ends with the library, and that it ends so without.
pub(crate) fn check(name: &str, case: &str, status: i32, lines: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(name, folder.path()) else { return };
    let expected =
        (Some(status), lines.iter().map(|line| format!("{line}\n")).collect(), "".into());
    let plain = Command::new(&program).arg(case).env_remove("LD_PRELOAD").output().unwrap();
    assert_eq!(parts(&plain), expected, "without the library");
    let served = Command::new(&program).arg(case).env("LD_PRELOAD", library()).output().unwrap();
    assert_eq!(parts(&served), expected);
}
