//! The binaries that run in the machine, as cargo builds them.

use super::steps::{COMMAND, LIBRARY, PARTS, Part, Step, file_name};
use super::tools::output;
use crate::Result;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) struct Suite {
    pub(super) target_directory: PathBuf,
    /// Where cargo runs the tests, and the sources that some of them read.
    pub(super) package: PathBuf,
    /// Of what it was built: a commit, if git knows it.
    pub(super) build: String,
    pub(super) binaries: Vec<Binary>,
    /// In the order in which they are run.
    pub(super) steps: Vec<Step>,
    /// The command and this program.
    pub(super) programs: Vec<PathBuf>,
}

pub(super) struct Binary {
    /// In the machine.
    pub(super) name: String,
    pub(super) path: PathBuf,
}

/// Builds the programs and, if steps are wanted, their test binaries: all, or the named ones.
pub(super) fn build(target: Option<&str>, names: Option<&[String]>) -> Result<Suite> {
    let metadata = output(cargo("metadata", None).args(["--no-deps", "--format-version=1"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let root = metadata["workspace_root"].as_str().ok_or("cargo metadata names no workspace")?;
    let directory =
        metadata["target_directory"].as_str().ok_or("cargo metadata names no target")?;
    let mut binaries = Vec::new();
    let steps = match names {
        Some(names) => plan(target, names, &mut binaries)?,
        None => Vec::new(),
    };
    let mut programs = cargo("build", target);
    programs.args(["--package", COMMAND, "--package", "xtask"]);
    let mut describe = Command::new("git");
    describe.args(["-C", root, "describe", "--always", "--dirty", "--exclude=*"]);
    Ok(Suite {
        target_directory: directory.into(),
        package: Path::new(root).join("crates/cringle"),
        build: output(&mut describe).unwrap_or_else(|_| "unknown".into()).trim().into(),
        binaries,
        steps,
        programs: executables(&mut programs)?.into_iter().map(|(_, path)| path).collect(),
    })
}

/// The steps of these names, in their order; without names, all.
fn plan(target: Option<&str>, names: &[String], binaries: &mut Vec<Binary>) -> Result<Vec<Step>> {
    let is_wanted = |part: &&Part| names.is_empty() || names.iter().any(|name| name == part.name);
    let parts: Vec<&Part> = PARTS.iter().filter(is_wanted).collect();
    let is_part = |name: &&String| parts.iter().any(|part| part.name == **name);
    let whole: Vec<&str> = names.iter().filter(|name| !is_part(name)).map(String::as_str).collect();
    let mut steps = Vec::new();
    for package in [LIBRARY, COMMAND] {
        let here: Vec<&Part> = parts.iter().copied().filter(|it| it.package == package).collect();
        let all = names.is_empty() && package == LIBRARY;
        let whole: &[&str] = if package == LIBRARY { &whole } else { &[] };
        let named = whole.iter().copied().chain(here.iter().map(|part| part.binary)).collect();
        for (name, path) in built(target, package, (!all).then_some(named))? {
            if all || whole.contains(&name.as_str()) {
                steps.push(Step::whole(&name, &path)?);
            }
            for part in here.iter().filter(|part| part.binary == name) {
                steps.push(Step::part(part, &path)?);
            }
            binaries.push(Binary { name: file_name(package, &name), path });
        }
    }
    steps.sort_by_key(|step| names.iter().position(|name| *name == step.name));
    Ok(steps)
}

/// Test binaries of a package: all, or these.
fn built(
    target: Option<&str>,
    package: &str,
    only: Option<Vec<&str>>,
) -> Result<Vec<(String, PathBuf)>> {
    let mut command = cargo("test", target);
    command.args(["--no-run", "--package", package]);
    if package == LIBRARY {
        command.args(["--features", "sim,raw"]);
    }
    match only {
        None => command.args(["--lib", "--tests"]),
        Some(names) if names.is_empty() => return Ok(Vec::new()),
        Some(names) => command.args(names.iter().flat_map(|name| match *name {
            "lib" => vec!["--lib"],
            name => vec!["--test", name],
        })),
    };
    // Programs are built with them, for them to run.
    let is_test =
        |found: &(String, PathBuf)| found.1.parent().is_some_and(|at| at.ends_with("deps"));
    Ok(executables(&mut command)?.into_iter().filter(is_test).collect())
}

fn cargo(task: &str, target: Option<&str>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg(task);
    command.args(target.into_iter().flat_map(|triple| ["--target", triple]));
    command
}

/// Names and paths of what was built.
fn executables(command: &mut Command) -> Result<Vec<(String, PathBuf)>> {
    command.arg("--message-format=json-render-diagnostics").stderr(std::process::Stdio::inherit());
    let mut found = Vec::new();
    for line in output(command)?.lines() {
        let message: Value = serde_json::from_str(line)?;
        if let Some(path) = message["executable"].as_str() {
            let target = &message["target"];
            let is_lib = target["kind"] == serde_json::json!(["lib"]);
            let name = target["name"].as_str().filter(|_| !is_lib).unwrap_or("lib");
            found.push((name.to_owned(), path.into()));
        }
    }
    Ok(found)
}
