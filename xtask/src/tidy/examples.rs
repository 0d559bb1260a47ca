//! Requires an example on every public item of the library. An `impl` block is no item of its own:
//! its type and its methods have the examples.

use super::Finding;
use super::sources::root;
use crate::Result;
use std::process::Command;

const LINT: &str = "-Zcrate-attr=feature(rustdoc_missing_doc_code_examples) \
                    -W rustdoc::missing_doc_code_examples";

/// Runs rustdoc with its unstable lint for missing examples.
pub(super) fn check(findings: &mut Vec<Finding>) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args([
        "doc",
        "-p",
        "cringle",
        "--no-deps",
        "--all-features",
        "--message-format",
        "short",
    ]);
    cargo.args(["--target-dir", "target/tidy"]).current_dir(root());
    let output = cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTDOCFLAGS", LINT).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("cargo doc failed:\n{text}").into());
    }
    for line in text.lines().filter(|line| line.contains("missing code example")) {
        let mut parts = line.splitn(3, ':');
        let (Some(file), Some(number)) = (parts.next(), parts.next()) else { continue };
        let number = number.parse().unwrap_or(1);
        if is_impl(file, number)? {
            continue;
        }
        findings.push(Finding {
            file: file.into(),
            line: number,
            text: "a public item without an example; add one that runs".into(),
        });
    }
    Ok(())
}

/// Returns whether an `impl` block begins at this line.
fn is_impl(file: &str, number: usize) -> Result<bool> {
    let text = std::fs::read_to_string(root().join(file))?;
    let line = text.lines().nth(number.saturating_sub(1)).unwrap_or_default();
    Ok(line.trim_start().starts_with("impl"))
}
