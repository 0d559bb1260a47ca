//! The files to check: every Rust file that git tracks.

use crate::{Result, commands, target_directory};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

/// A Rust file.
pub(super) struct Source {
    /// The path from the root of the repository.
    pub(super) path: String,
    pub(super) text: String,
}

impl Source {
    #[cfg(test)]
    pub(super) fn new(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    /// The lines with their numbers, from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

pub(super) fn root() -> PathBuf {
    crate::root()
}

/// Where `cargo doc` writes the documentation.
pub(super) fn documentation() -> PathBuf {
    root().join(target_directory()).join("doc")
}

/// Adds the files below a directory whose names end so.
pub(super) fn files(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, extension, found)?;
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    Ok(())
}

pub(super) fn all() -> Result<Vec<Source>> {
    let mut git = Command::new("git");
    let names = commands::output(git.args(["ls-files", "*.rs"]).current_dir(root()))?;
    let mut sources = Vec::new();
    for path in names.lines() {
        // Git still lists a file whose deletion is not committed.
        if let Ok(text) = fs::read_to_string(root().join(path)) {
            sources.push(Source { path: path.into(), text });
        }
    }
    Ok(sources)
}
