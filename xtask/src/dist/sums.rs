//! `SHA256SUMS`: the checksum of each file below `dist/`.

use crate::Result;
use crate::commands::output;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE: &str = "SHA256SUMS";

pub(super) fn write(dist: &Path) -> Result<()> {
    let mut files = Vec::new();
    collect(dist, Path::new(""), &mut files)?;
    files.sort();
    let sums = output(Command::new("sha256sum").arg("--").args(&files).current_dir(dist))?;
    Ok(fs::write(dist.join(FILE), sums)?)
}

fn collect(dist: &Path, below: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dist.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(dist, &path, files)?;
        } else if path != Path::new(FILE) {
            files.push(path);
        }
    }
    Ok(())
}

/// The lines, each with the sum and the name of a file.
pub(super) fn read(dist: &Path) -> Result<Vec<String>> {
    Ok(fs::read_to_string(dist.join(FILE))?.lines().map(str::to_owned).collect())
}

/// The names of the files that only one of both has, or that differ.
pub(super) fn differing(one: &Path, other: &Path) -> Result<Vec<String>> {
    let (one, other) = (read(one)?, read(other)?);
    let only = |these: &[String], those: &[String]| {
        let these = these.iter().filter(|line| !those.contains(line));
        these
            .map(|line| line.split_once("  ").map_or(line.as_str(), |it| it.1).to_owned())
            .collect::<Vec<_>>()
    };
    let mut names = [only(&one, &other), only(&other, &one)].concat();
    names.sort();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("crates")).unwrap();
        for (name, content) in files {
            fs::write(folder.path().join(name), content).unwrap();
        }
        write(folder.path()).unwrap();
        folder
    }

    #[test]
    fn files_that_differ_or_are_missing_are_named() {
        let one = with(&[("a", "1"), ("crates/b", "2"), ("c", "3")]);
        let other = with(&[("a", "1"), ("crates/b", "changed"), ("d", "4")]);
        assert_eq!(differing(one.path(), other.path()).unwrap(), ["c", "crates/b", "d"]);
        assert!(differing(one.path(), one.path()).unwrap().is_empty());
    }
}
