//! `cargo xtask` is compiled from the same libraries as the tests.
//!
//! A command of cargo gives each library the features that its packages ask for. So `cargo xtask`
//! alone may ask for fewer than the whole workspace does, and each of them would be compiled twice.

use super::Finding;
use crate::Result;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// Builds both, and finds what the tests do not share with `cargo xtask`.
pub(super) fn check(findings: &mut Vec<Finding>) -> Result<()> {
    let tests = messages(&["test", "--workspace", "--all-features", "--no-run"])?;
    let program = messages(&["build", "--package", "xtask"])?;
    for id in compiled_again(&tests, &program) {
        findings.push(Finding {
            file: "xtask/Cargo.toml".into(),
            line: 1,
            text: format!("{id} is compiled twice; ask for the features that the tests give it"),
        });
    }
    Ok(())
}

/// Builds, and returns what cargo says about each artifact.
fn messages(arguments: &[&str]) -> Result<Vec<Value>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).arg("--message-format=json-render-diagnostics");
    let output = command.current_dir(super::sources::root()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("cargo {} failed", arguments.join(" ")).into());
    }
    let lines = String::from_utf8(output.stdout)?;
    let messages: serde_json::Result<Vec<Value>> =
        lines.lines().map(serde_json::from_str).collect();
    Ok(messages?.into_iter().filter(|message| message["reason"] == "compiler-artifact").collect())
}

/// The packages of registries with an artifact that only the program has. (The name of a file has
/// a hash of the features.)
fn compiled_again<'m>(tests: &[Value], program: &'m [Value]) -> BTreeSet<&'m str> {
    let shared: BTreeSet<String> =
        tests.iter().map(|artifact| artifact["filenames"].to_string()).collect();
    let own =
        program.iter().filter(|artifact| !shared.contains(&artifact["filenames"].to_string()));
    let ids = own.filter_map(|artifact| artifact["package_id"].as_str());
    ids.filter(|id| id.starts_with("registry+")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_libraries_with_other_files_are_found() {
        let artifact = |id: &str, file: &str| json!({ "package_id": id, "filenames": [file] });
        let tests = [artifact("registry+a#syn@3.0.9", "libsyn-1"), artifact("path+b#x", "x-1")];
        let mut program = tests.clone();
        program[1]["filenames"][0] = "x-2".into();
        assert!(compiled_again(&tests, &program).is_empty());
        program[0]["filenames"][0] = "libsyn-2".into();
        assert_eq!(Vec::from_iter(compiled_again(&tests, &program)), ["registry+a#syn@3.0.9"]);
    }
}
