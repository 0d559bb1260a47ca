//! `cargo xtask` is compiled from the same libraries as the tests.
//!
//! A command of cargo gives each library the features that its packages ask for. So `cargo xtask`
//! alone may ask for fewer than the whole workspace does, and each of them would be compiled twice.

use super::Finding;
use crate::{Result, commands};
use serde_json::Value;
use std::collections::BTreeSet;

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
    commands::artifacts(commands::cargo().args(arguments).current_dir(super::sources::root()))
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
