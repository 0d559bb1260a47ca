//! The files to check: every Rust file that git tracks.

use crate::{Result, target_directory};
use std::path::PathBuf;
use std::process::Command;

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

pub(super) fn all() -> Result<Vec<Source>> {
    let listed = Command::new("git").args(["ls-files", "*.rs"]).current_dir(root()).output()?;
    if !listed.status.success() {
        return Err("git ls-files failed: run this in a checkout".into());
    }
    let names = String::from_utf8(listed.stdout)?;
    let mut sources = Vec::new();
    for path in names.lines() {
        // Git still lists a file whose deletion is not committed.
        if let Ok(text) = std::fs::read_to_string(root().join(path)) {
            sources.push(Source { path: path.into(), text });
        }
    }
    Ok(sources)
}
