//! Builds the binaries that run in the machine.

use super::steps::{COMMAND, LIBRARY, PARTS, Part, Step, file_name};
use crate::Result;
use crate::commands::{self, output};
use crate::crates::{self, Crate};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The features of the library with which its tests run.
const FEATURES: &str = "sim,raw";

/// What runs in the machine.
pub(super) struct Suite {
    pub(super) target_directory: PathBuf,
    /// The library's package, which is the working directory of its tests.
    pub(super) package: PathBuf,
    /// The packages with sources that tests of the library read.
    pub(super) sources: Vec<PathBuf>,
    /// The commit that it was built from, if git knows it.
    pub(super) build: String,
    pub(super) binaries: Vec<Binary>,
    /// The steps in the order in which they run.
    pub(super) steps: Vec<Step>,
    /// The `cringle` command, and the example `driver`.
    pub(super) programs: Vec<PathBuf>,
    /// The library's examples, if their tests run.
    pub(super) examples: Vec<PathBuf>,
}

/// A test binary.
pub(super) struct Binary {
    /// Its file name in the machine.
    pub(super) name: String,
    pub(super) path: PathBuf,
}

/// Builds the programs and, with `names`, the test binaries of the named steps, or of all if it is
/// empty.
pub(super) fn build(names: Option<&[String]>) -> Result<Suite> {
    let metadata = output(cargo("metadata").args(["--no-deps", "--format-version=1"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let root = metadata["workspace_root"].as_str().ok_or("cargo metadata names no workspace")?;
    let directory =
        metadata["target_directory"].as_str().ok_or("cargo metadata names no target")?;
    let mut binaries = Vec::new();
    let steps = match names {
        Some(names) => plan(names, &mut binaries)?,
        None => Vec::new(),
    };
    let mut programs = cargo("build");
    programs.args(["--package", COMMAND, "--bins", "--package", LIBRARY, "--example", "driver"]);
    let examples = match binaries.iter().any(|it| it.name == file_name(LIBRARY, "examples")) {
        true => examples()?,
        false => Vec::new(),
    };
    let mut describe = Command::new("git");
    describe.args(["-C", root, "describe", "--always", "--dirty", "--exclude=*"]);
    Ok(Suite {
        target_directory: directory.into(),
        package: Path::new(root).join("crates/cringle"),
        sources: crates::library().map(|it| Path::new(root).join(it.folder)).collect(),
        build: output(&mut describe).unwrap_or_else(|_| "unknown".into()).trim().into(),
        binaries,
        steps,
        programs: executables(&mut programs)?.into_iter().map(|(_, path)| path).collect(),
        examples,
    })
}

/// Builds the library's examples, which its test binary of that name runs.
fn examples() -> Result<Vec<PathBuf>> {
    let mut command = cargo("build");
    command.args(["--package", LIBRARY, "--features", FEATURES, "--examples"]);
    Ok(executables(&mut command)?.into_iter().map(|(_, path)| path).collect())
}

/// Builds the binaries of the named steps and returns these steps in the order of the names; all
/// steps without names.
fn plan(names: &[String], binaries: &mut Vec<Binary>) -> Result<Vec<Step>> {
    let is_wanted = |part: &&Part| names.is_empty() || names.iter().any(|name| name == part.name);
    let parts: Vec<&Part> = PARTS.iter().filter(is_wanted).collect();
    let mut steps = Vec::new();
    for (name, path) in unit_tests(names)? {
        steps.push(Step::whole(&name));
        binaries.push(Binary { name, path });
    }
    let is_known = |name: &&String| {
        parts.iter().any(|part| part.name == **name) || crates::library().any(|it| asks(it, name))
    };
    let whole: Vec<&str> =
        names.iter().filter(|name| !is_known(name)).map(String::as_str).collect();
    for package in [LIBRARY, COMMAND] {
        let here: Vec<&Part> = parts.iter().copied().filter(|it| it.package == package).collect();
        let all = names.is_empty() && package == LIBRARY;
        let whole: &[&str] = if package == LIBRARY { &whole } else { &[] };
        let named = whole.iter().copied().chain(here.iter().map(|part| part.binary)).collect();
        for (name, path) in built(package, (!all).then_some(named))? {
            if all || whole.contains(&name.as_str()) {
                steps.push(Step::whole(&file_name(package, &name)));
            }
            let parts = here.iter().filter(|part| part.binary == name);
            steps.extend(parts.map(|part| Step::part(part)));
            binaries.push(Binary { name: file_name(package, &name), path });
        }
    }
    steps.sort_by_key(|step| names.iter().position(|name| step.is(name)));
    Ok(steps)
}

/// Whether a name asks for the unit tests of a part of the library. (The facade has none.)
fn asks(part: &Crate, name: &str) -> bool {
    part.name() != LIBRARY && Step::whole(&file_name(part.name(), "lib")).is(name)
}

/// Builds the unit tests of the library's parts that are asked for, with the features of the
/// library's tests. Returns their names in the machine, and their paths.
fn unit_tests(names: &[String]) -> Result<Vec<(String, PathBuf)>> {
    let is_wanted = |it: &&Crate| match names {
        [] => it.name() != LIBRARY,
        names => names.iter().any(|name| asks(it, name)),
    };
    let wanted: Vec<&Crate> = crates::library().filter(is_wanted).collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let mut command = cargo("test");
    command.args(["--no-run", "--lib", "--package", LIBRARY]);
    command.args(wanted.iter().flat_map(|it| ["--package", it.name()]));
    let features = FEATURES.split(',').map(|feature| format!("{LIBRARY}/{feature}"));
    command.arg("--features").arg(features.collect::<Vec<_>>().join(","));
    let mut found = Vec::new();
    for message in commands::artifacts(&mut command)? {
        let of = wanted.iter().find(|it| message["target"]["name"] == it.import());
        if let (Some(it), Some(path)) = (of, message["executable"].as_str()) {
            found.push((file_name(it.name(), "lib"), path.into()));
        }
    }
    Ok(found)
}

/// Builds test binaries of a package: all of them, or those in `only`.
fn built(package: &str, only: Option<Vec<&str>>) -> Result<Vec<(String, PathBuf)>> {
    let mut command = cargo("test");
    command.args(["--no-run", "--package", package]);
    if package == LIBRARY {
        command.args(["--features", FEATURES]);
    }
    match only {
        None => command.arg("--tests"),
        Some(names) if names.is_empty() => return Ok(Vec::new()),
        Some(names) => command.args(names.iter().flat_map(|name| ["--test", name])),
    };
    // Cargo also builds the programs that the tests run; keep only the tests.
    let is_test =
        |found: &(String, PathBuf)| found.1.parent().is_some_and(|at| at.ends_with("deps"));
    Ok(executables(&mut command)?.into_iter().filter(is_test).collect())
}

fn cargo(task: &str) -> Command {
    let mut command = commands::cargo();
    command.arg(task);
    command
}

/// Runs a build and returns the names and paths of its executables.
fn executables(command: &mut Command) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for message in commands::artifacts(command)? {
        if let Some(path) = message["executable"].as_str() {
            let target = &message["target"];
            let is_lib = target["kind"] == serde_json::json!(["lib"]);
            let name = target["name"].as_str().filter(|_| !is_lib).unwrap_or("lib");
            found.push((name.to_owned(), path.into()));
        }
    }
    Ok(found)
}
