//! Programs that the compiler must reject, beyond the examples of the documentation, each with the
//! code of its error. They are given to `rustc` many at a time: a call of `rustc` costs more than a
//! program. Each rejected program has an accepted counterpart, so that it cannot fail for another
//! reason.

mod programs;
mod variance;

use programs::GROUPS;
use serde_json::Value;
use std::any::TypeId;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// A group of programs that differ by a line or two.
struct Group {
    name: &'static str,
    accepted: &'static str,
    /// The error of each program, and the program.
    rejected: &'static [(Error, &'static str)],
}

/// Why the compiler rejects a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Error {
    /// It has this code.
    Code(&'static str),
    /// It has no code, but this message.
    Message(&'static str),
}

use Error::{Code, Message};

const TOO_SHORT: Error = Message("lifetime may not live long enough");

impl Error {
    /// Whether the error is found before borrows are checked. A file with such errors is not
    /// checked further.
    fn is_of_types(self) -> bool {
        matches!(self, Code("E0277" | "E0282" | "E0308"))
    }

    fn describes(self, found: &Found) -> bool {
        match self {
            Code(code) => found.code.as_deref() == Some(code),
            Message(message) => found.code.is_none() && found.message == message,
        }
    }
}

/// An error that the compiler has reported.
#[derive(Clone, Debug)]
struct Found {
    code: Option<String>,
    message: String,
}

/// A file of many programs, each of which is a function in a module.
#[derive(Default)]
struct Source {
    text: String,
    /// The number of the last line of each program.
    ends: Vec<usize>,
}

impl Source {
    fn add(&mut self, program: &str) {
        let number = self.ends.len();
        self.text += &format!("mod p{number} {{ pub fn program() {{\n{program}\n}} }}\n");
        self.ends.push(self.text.lines().count());
    }

    /// Adds a `main` that prints this expression, and runs each program.
    fn run_all(&mut self, printed: &str) {
        let calls: String = (0..self.ends.len()).map(|n| format!("p{n}::program();\n")).collect();
        self.text += &format!("fn main() {{\nprintln!(\"{{:?}}\", {printed});\n{calls}}}\n");
    }

    fn program_at(&self, line: u64) -> usize {
        self.ends.partition_point(|&end| (end as u64) < line)
    }
}

/// Returns `rustc` with the options that all calls have; `None` if it is not installed and not
/// required.
fn rustc() -> Option<Command> {
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    if Command::new(&program).arg("--version").output().is_err() {
        let required = std::env::var_os("CRINGLE_TOOLS").is_some_and(|value| value == "required");
        assert!(!required, "{} is not installed", program.display());
        eprintln!("skipped: {} is not installed", program.display());
        return None;
    }
    let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    let mut rustc = Command::new(program);
    rustc.args(["--edition=2024", "--cap-lints=allow", "--error-format=json"]);
    rustc.arg(format!("--target={}-unknown-linux-{libc}", std::env::consts::ARCH));
    Some(rustc)
}

/// The directory of the libraries of which this program was made.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Compiles a file with this library into a directory.
fn compile(
    mut rustc: Command,
    library: &Path,
    source: &Source,
    directory: &Path,
    arguments: &[&str],
) -> Output {
    let file = directory.join("programs.rs");
    std::fs::write(&file, &source.text).unwrap();
    rustc.arg(&file).arg("--out-dir").arg(directory).args(arguments);
    rustc.arg(format!("-Ldependency={}", libraries().display()));
    rustc.arg(format!("--extern=cringle={}", library.display()));
    rustc.output().unwrap()
}

/// The library of which this program was made. The accepted programs have been compiled with it,
/// and run.
///
/// The directory may have the library with other features, or of other builds. The right one is
/// recognised by an identity that the compiler computes from the metadata of the crate, which cargo
/// derives from features, flags and versions: a type of another build has another `TypeId`. So the
/// accepted programs print that of a type, and it must be the one that this program has. A library
/// cannot be newer than this program under the same name, because cargo then links the program
/// again.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let mut source = Source::default();
    accepted().iter().for_each(|program| source.add(program));
    source.run_all("std::any::TypeId::of::<cringle::Cancelled>()");
    let ours = format!("{:?}", TypeId::of::<cringle::Cancelled>());
    let directory = tempfile::tempdir().unwrap();
    let mut failures = String::new();
    for library in candidates() {
        let rustc = rustc().expect("the tests have called it");
        let arguments = ["--crate-type=bin", "-Cdebuginfo=0"];
        let compiled = compile(rustc, &library, &source, directory.path(), &arguments);
        if !compiled.status.success() {
            let errors = String::from_utf8_lossy(&compiled.stderr);
            failures += &format!("{}:\n{errors}\n", library.display());
            continue;
        }
        let ended = Command::new(directory.path().join("programs")).output().unwrap();
        let printed = String::from_utf8_lossy(&ended.stdout);
        if printed.lines().next() == Some(&ours) {
            assert!(ended.status.success(), "the accepted programs fail: {ended:?}");
            return library;
        }
        failures += &format!("{}: is another build\n", library.display());
    }
    panic!("no library in {} accepts the programs:\n{failures}", libraries().display());
});

/// The libraries in the directory of this program, the newest first.
fn candidates() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(libraries()).unwrap().map(|entry| entry.unwrap().path());
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libcringle-") && name.ends_with(".rlib")
    };
    let mut found: Vec<PathBuf> = entries.filter(is_library).collect();
    found.sort_by_key(|path| std::cmp::Reverse(path.metadata().unwrap().modified().unwrap()));
    found
}

fn accepted() -> Vec<String> {
    let groups = GROUPS.iter().map(|group| group.accepted.to_owned());
    groups.chain(variance::programs(true).into_iter().map(|(_, _, program)| program)).collect()
}

/// The name, the error and the text of each rejected program.
fn rejected() -> Vec<(String, Error, String)> {
    let of_group = |group: &'static Group| {
        let named = |(n, &(error, program)): (usize, &(Error, &str))| {
            (format!("{} {n}", group.name), error, program.to_owned())
        };
        group.rejected.iter().enumerate().map(named)
    };
    GROUPS.iter().flat_map(of_group).chain(variance::programs(false)).collect()
}

/// Returns the errors of each program of a file.
fn errors(source: &Source, output: &Output) -> BTreeMap<usize, Vec<Found>> {
    let mut errors: BTreeMap<usize, Vec<Found>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        let diagnostic: Value = serde_json::from_str(line).unwrap();
        let message = diagnostic["message"].as_str().unwrap();
        if diagnostic["level"] != "error" || message.starts_with("aborting due to ") {
            continue;
        }
        let spans = diagnostic["spans"].as_array().unwrap();
        let is_primary = |span: &&Value| span["is_primary"] == true;
        let span = spans.iter().find(is_primary).unwrap_or_else(|| panic!("no place: {line}"));
        let name = span["file_name"].as_str().unwrap();
        assert!(name.ends_with("/programs.rs"), "an error elsewhere: {line}");
        let found = Found {
            code: diagnostic["code"]["code"].as_str().map(str::to_owned),
            message: message.to_owned(),
        };
        let program = source.program_at(span["line_start"].as_u64().unwrap());
        errors.entry(program).or_default().push(found);
    }
    errors
}

/// Compiles rejected programs together. Each must have its error, and no other.
fn must_be_rejected(programs: &[(String, Error, String)]) {
    let Some(rustc) = rustc() else { return };
    let mut source = Source::default();
    programs.iter().for_each(|(_, _, program)| source.add(program));
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["--crate-type=lib", "--emit=metadata"];
    let output = compile(rustc, &LIBRARY, &source, directory.path(), &arguments);
    let errors = errors(&source, &output);
    let mut wrong = String::new();
    for (n, (name, error, program)) in programs.iter().enumerate() {
        let found = errors.get(&n).map_or(&[][..], Vec::as_slice);
        if found.is_empty() || !found.iter().all(|found| error.describes(found)) {
            wrong += &format!("{name} has {found:?} instead of {error:?}:\n{program}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn counterparts_of_rejected_programs_run() {
    if rustc().is_some() {
        assert!(LIBRARY.exists());
    }
}

#[test]
fn programs_with_wrong_types_are_rejected() {
    let (types, _): (Vec<_>, Vec<_>) =
        rejected().into_iter().partition(|(_, error, _)| error.is_of_types());
    assert!(!types.is_empty());
    must_be_rejected(&types);
}

#[test]
fn programs_with_wrong_borrows_are_rejected() {
    let (_, borrows): (Vec<_>, Vec<_>) =
        rejected().into_iter().partition(|(_, error, _)| error.is_of_types());
    assert!(!borrows.is_empty());
    must_be_rejected(&borrows);
}
