//! The binaries that run in the machine, as cargo builds them.

use super::tools::output;
use crate::Result;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) struct Suite {
    pub(super) target_directory: PathBuf,
    /// Where cargo runs the tests, and the sources that some of them read.
    pub(super) package: PathBuf,
    pub(super) tests: Vec<TestBinary>,
    /// The command and this program.
    pub(super) programs: Vec<PathBuf>,
}

pub(super) struct TestBinary {
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// The tests that it says it has.
    pub(super) tests: Vec<String>,
}

/// Builds the programs and, if tests are wanted, those of the library: all, or the named ones.
pub(super) fn build(target: Option<&str>, tests: Option<&Vec<String>>) -> Result<Suite> {
    let metadata = output(cargo("metadata", None).args(["--no-deps", "--format-version=1"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let root = metadata["workspace_root"].as_str().ok_or("cargo metadata names no workspace")?;
    let directory =
        metadata["target_directory"].as_str().ok_or("cargo metadata names no target")?;
    let tests = tests.map(|only| executables(&mut tests_command(target, only))).transpose()?;
    let mut programs = cargo("build", target);
    programs.args(["--package", "cringle-cli", "--package", "xtask"]);
    Ok(Suite {
        target_directory: directory.into(),
        package: Path::new(root).join("crates/cringle"),
        tests: tests.into_iter().flatten().map(inventory).collect::<Result<_>>()?,
        programs: executables(&mut programs)?.into_iter().map(|(_, path)| path).collect(),
    })
}

fn tests_command(target: Option<&str>, only: &[String]) -> Command {
    let mut command = cargo("test", target);
    command.args(["--no-run", "--package", "cringle", "--features", "sim,raw"]);
    if only.is_empty() {
        command.args(["--lib", "--tests"]);
    }
    for name in only {
        match name.as_str() {
            "lib" => command.arg("--lib"),
            name => command.args(["--test", name]),
        };
    }
    command
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

fn inventory((name, path): (String, PathBuf)) -> Result<TestBinary> {
    let listed = output(Command::new(&path).args(["--list", "--format=terse"]))?;
    let tests = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(TestBinary { name, tests: tests.map(str::to_owned).collect(), path })
}
