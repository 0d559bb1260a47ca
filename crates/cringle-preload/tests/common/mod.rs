//! C programs that run with the library and without.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The library that cargo has built with this test.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its path");
    let library = test.with_file_name("libcringle_preload.so");
    assert!(library.exists(), "{}: not built", library.display());
    library
}

/// Compiles the program `NAME.c`; `None` if there is no C compiler.
pub(crate) fn compile(name: &str, folder: &Path) -> Option<PathBuf> {
    compile_with(name, folder.join(name), &[])
}

/// The same with more options.
pub(crate) fn compile_with(name: &str, program: PathBuf, options: &[&str]) -> Option<PathBuf> {
    let source = format!("{}/tests/c/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread"]);
    let Ok(status) = compiler.args(options).arg("-o").arg(&program).arg(source).status() else {
        let is_required = std::env::var_os("CRINGLE_TOOLS").is_some_and(|it| it == "required");
        assert!(!is_required, "there is no `cc`: install it");
        println!("skipped: there is no `cc`");
        return None;
    };
    assert!(status.success());
    Some(program)
}

/// How a program has ended, and what it has printed.
pub(crate) fn parts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}
