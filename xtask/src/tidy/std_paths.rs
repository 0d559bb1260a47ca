//! Which paths of the library std has, too: rustc knows.

use super::sources::documentation;
use crate::Result;
use serde_json::Value;
use std::collections::HashSet;
use std::fmt::Write;
use std::process::Command;

/// What rustc reports of a path that does not exist. Of one that exists, it may report that its
/// types are unknown.
const NOT_FOUND: [&str; 8] =
    ["E0405", "E0412", "E0425", "E0432", "E0433", "E0576", "E0599", "E0603"];

/// A method that nothing has.
const OF_NEITHER: &str = "fs::File::of_neither";

/// Returns those of the paths that std has: `fs::File::create`, as `std::fs::File::create`.
pub(super) fn existing<'a>(paths: impl Iterator<Item = &'a str>) -> Result<HashSet<String>> {
    let mut paths: Vec<&str> = paths.collect();
    if paths.is_empty() {
        return Ok(HashSet::new());
    }
    // Without it, a rustc that reports nothing would find all of them.
    paths.push(OF_NEITHER);
    // Where a module is not found, rustc does not look for methods yet.
    loop {
        let not_found = not_found(&paths)?;
        if not_found.is_empty() {
            if paths.contains(&OF_NEITHER) {
                return Err("rustc does not report a path that std does not have".into());
            }
            return Ok(paths.into_iter().map(String::from).collect());
        }
        let mut index = 0..;
        paths.retain(|_| index.next().is_none_or(|index| !not_found.contains(&index)));
    }
}

/// Returns the indices of paths that rustc does not find.
fn not_found(paths: &[&str]) -> Result<HashSet<usize>> {
    let mut program = String::new();
    for path in paths {
        let path = match path.split_once("::") {
            Some(("fiber", rest)) => format!("thread::{rest}"),
            Some(("detect", rest)) if rest.starts_with("Mutex") => format!("sync::{rest}"),
            Some(("detect", rest)) => format!("cell::{rest}"),
            _ => (*path).to_owned(),
        };
        writeln!(program, "const _: fn() = || {{ let _ = std::{path}; }};")?;
    }
    let directory = documentation();
    std::fs::create_dir_all(&directory)?;
    let file = directory.join("std_paths.rs");
    std::fs::write(&file, program)?;
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--error-format=json"]);
    let output = rustc.arg("--out-dir").arg(&directory).arg(&file).output()?;
    let mut found = HashSet::new();
    for line in String::from_utf8(output.stderr)?.lines() {
        let message: Value = serde_json::from_str(line)?;
        if NOT_FOUND.contains(&message["code"]["code"].as_str().unwrap_or_default()) {
            let line = message["spans"][0]["line_start"].as_u64().unwrap_or_default();
            let line = usize::try_from(line)?.checked_sub(1);
            found.insert(line.ok_or("rustc's messages have another form")?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_std_has_is_found() {
        let std = [
            "fs::File::create",
            "fs::read",
            "fiber::spawn",
            "os::unix::fs::FileExt::read_at",
            "detect::Mutex::lock",
            "detect::RefCell::borrow",
        ];
        let own =
            ["fs::File::punch_hole", "fs::read_all", "block::Batch::new", "fs::Files::create"];
        let found = existing(std.into_iter().chain(own)).unwrap();
        assert_eq!(found, HashSet::from(std.map(String::from)));
        assert_eq!(existing(own.into_iter()).unwrap(), HashSet::new());
    }
}
