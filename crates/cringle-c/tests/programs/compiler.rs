//! Compiles the programs, once for all tests of this process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    Sanitized,
    Plain,
}

const WARNINGS: [&str; 7] = [
    "-std=c11",
    "-D_GNU_SOURCE",
    "-Wall",
    "-Wextra",
    "-Wredundant-decls",
    "-Werror",
    "-Wno-unused-function",
];
const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
const CASES: [&str; 9] =
    ["main", "results", "misuse", "lifecycle", "async", "system", "registered", "large", "queue"];

/// Prints that a test is skipped because this tool is missing; `CRINGLE_TOOLS=required` makes it a
/// failure.
pub(crate) fn missing(tool: &str) {
    let required = std::env::var_os("CRINGLE_TOOLS").is_some_and(|value| value == "required");
    assert!(!required, "there is no `{tool}`: install it");
    println!("skipped: there is no `{tool}`");
}

/// Whether `cc` exists. Otherwise prints that the test is skipped.
pub(crate) fn has_compiler() -> bool {
    let exists = Command::new("cc").arg("--version").output().is_ok();
    if !exists {
        missing("cc");
    }
    exists
}

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn header() -> PathBuf {
    crate_dir().join("include/cringle.h")
}

/// The directory of the shared library that cargo has built with this test.
pub(crate) fn library_dir() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its path");
    let dir = test.parent().expect("a program lies in a directory").to_owned();
    assert!(dir.join("libcringle_c.so").exists(), "{}: no libcringle_c.so", dir.display());
    dir
}

/// A directory for the programs of this process.
fn out_dir() -> &'static Path {
    static DIR: OnceLock<tempfile::TempDir> = OnceLock::new();
    let dir = DIR.get_or_init(|| {
        let place = env!("CARGO_TARGET_TMPDIR");
        tempfile::Builder::new().prefix("c-").tempdir_in(place).expect("a directory")
    });
    dir.path()
}

fn compile(out: &Path, sources: &[PathBuf], options: &[&str]) {
    let library = library_dir();
    let mut cc = Command::new("cc");
    cc.args(WARNINGS).args(["-g", "-O1", "-I"]).arg(crate_dir().join("include"));
    cc.args(sources).args(options).arg("-o").arg(out);
    cc.arg("-L").arg(&library).arg("-lcringle_c");
    cc.arg(format!("-Wl,-rpath,{}", library.display())).arg("-lpthread");
    run(&mut cc);
}

fn source(directory: &str, name: &str) -> PathBuf {
    crate_dir().join(directory).join(format!("{name}.c"))
}

/// The program of all cases.
pub(crate) fn cases(build: Build) -> &'static Path {
    static BUILT: [OnceLock<PathBuf>; 2] = [const { OnceLock::new() }; 2];
    BUILT[build as usize].get_or_init(|| {
        let sanitized = build == Build::Sanitized;
        let out = out_dir().join(if sanitized { "cases-sanitized" } else { "cases" });
        let sources = CASES.map(|name| source("tests/c", name));
        compile(&out, &sources, if sanitized { &SANITIZERS } else { &[] });
        out
    })
}

pub(crate) fn fuzz() -> PathBuf {
    let out = out_dir().join("fuzz");
    compile(&out, &[source("tests/c", "fuzz")], &SANITIZERS);
    out
}

/// Compiles a program whose source is this text.
pub(crate) fn of_text(name: &str, text: &str) -> PathBuf {
    let (out, source) = (out_dir().join(name), out_dir().join(format!("{name}.c")));
    std::fs::write(&source, text).expect("the source can be written");
    compile(&out, &[source], &SANITIZERS);
    out
}

pub(crate) fn example(name: &str, options: &[&str]) -> PathBuf {
    let out = out_dir().join(name);
    compile(&out, &[source("examples", name)], &[&SANITIZERS[..], options].concat());
    out
}

/// Compiles an example with the static library and these libraries alone: a sanitizer would add
/// others.
pub(crate) fn with_static_library(name: &str, libraries: &[&str]) -> PathBuf {
    let out = out_dir().join(format!("{name}-static"));
    let mut cc = Command::new("cc");
    cc.args(WARNINGS).arg("-I").arg(crate_dir().join("include"));
    cc.arg(source("examples", name)).arg(library_dir().join("libcringle_c.a")).args(libraries);
    run(cc.arg("-o").arg(&out));
    out
}

/// The environment in which functions of libc can be made to fail.
pub(crate) fn preloaded() -> [(&'static str, OsString); 2] {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let out = out_dir().join("failures.so");
        if has_compiler() {
            let mut cc = Command::new("cc");
            cc.args(WARNINGS).args(["-U_GNU_SOURCE", "-shared", "-fPIC"]);
            run(cc.arg(source("tests/c", "failures")).arg("-o").arg(&out).arg("-ldl"));
        }
        out
    });
    [("LD_PRELOAD", library.into()), ("FAIL_PTHREAD_CREATE", "0".into())]
}

/// Runs the command in the directory of the programs, and returns its standard output.
pub(crate) fn run(command: &mut Command) -> String {
    // cargo's has the library of another build before that of these tests.
    command.env_remove("LD_LIBRARY_PATH");
    let output = command.current_dir(out_dir()).output();
    let output = output.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let [out, err] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out
}
