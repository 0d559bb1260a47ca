//! Builds the tests, and asks cargo where their programs are.

use super::program::{How, Program};
use crate::{Result, commands};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// What is built: one selection of packages and features, so that no call builds anything again.
const SELECTION: [&str; 2] = ["--workspace", "--all-features"];

/// Builds all tests of the workspace, and returns their programs.
pub(super) fn programs() -> Result<Vec<Program>> {
    let built = commands::artifacts(test().args(SELECTION).arg("--no-run"))?;
    let mut programs: Vec<Program> = built.iter().filter_map(test_program).collect();
    programs.push(Program { how: How::Documentation, ..Program::named("doc") });
    Ok(programs)
}

/// The command that tests the examples in the documentation.
pub(super) fn documentation() -> Command {
    let mut command = test();
    command.args(SELECTION).args(["--doc", "--no-fail-fast", "--quiet"]);
    command
}

fn test() -> Command {
    let mut command = commands::cargo();
    command.arg("test").stdin(Stdio::null());
    command
}

/// Returns the program that a message of cargo names, if it has tests.
fn test_program(message: &Value) -> Option<Program> {
    let is_test = message["profile"]["test"] == true;
    let path = message["executable"].as_str().filter(|_| is_test)?;
    let target = match &message["target"]["kind"][0] {
        kind if kind == "test" => message["target"]["name"].as_str()?,
        kind if kind == "bin" => "bin",
        kind if kind == "example" => "example",
        _ => "lib",
    };
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let package = package_name(message["package_id"].as_str()?);
    Some(Program {
        name: format!("{package}:{target}"),
        how: How::Executable { path: path.into(), directory: manifest.parent()?.to_owned() },
    })
}

/// Returns the name in a package's id: `path+file:///a/cringle#0.1.0`, or with another directory
/// `path+file:///a/b#cringle@0.1.0`.
fn package_name(id: &str) -> &str {
    let (url, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => url.rsplit('/').next().unwrap_or(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn packages_are_named_by_their_ids() {
        assert_eq!(package_name("path+file:///a/cringle#0.1.0"), "cringle");
        assert_eq!(package_name("path+file:///a/testing#cringle-testing@0.1.0"), "cringle-testing");
    }

    #[test]
    fn only_programs_with_tests_are_found() {
        let mut message = json!({
            "package_id": "path+file:///a/cringle#0.1.0",
            "manifest_path": "/a/cringle/Cargo.toml",
            "target": { "kind": ["test"], "name": "fs" },
            "profile": { "test": true },
            "executable": "/a/target/debug/deps/fs-0",
        });
        let program = test_program(&message).unwrap();
        assert_eq!(program.name, "cringle:fs");
        message["target"]["kind"][0] = "rlib".into();
        assert_eq!(test_program(&message).unwrap().name, "cringle:lib");
        message["profile"]["test"] = false.into();
        assert!(test_program(&message).is_none());
    }
}
