//! What the book includes from sources exists: mdBook only warns.

use super::Finding;
use super::sources::root;
use crate::Result;
use std::path::Path;
use std::{fs, io};

const PAGES: &str = "docs/book/src";

pub(super) fn check(findings: &mut Vec<Finding>) -> Result<()> {
    let mut pages = Vec::new();
    collect(&root().join(PAGES), &mut pages)?;
    for page in pages {
        let text = fs::read_to_string(&page)?;
        for (index, line) in text.lines().enumerate() {
            if let Some(text) = problem(&page, line) {
                let file = page.strip_prefix(root()).unwrap_or(&page).display().to_string();
                findings.push(Finding { file, line: index + 1, text });
            }
        }
    }
    Ok(())
}

fn collect(directory: &Path, pages: &mut Vec<std::path::PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    Ok(())
}

/// What is wrong with `{{#include file:anchor}}`.
fn problem(page: &Path, line: &str) -> Option<String> {
    let include = line.trim().strip_prefix("{{#include ")?.strip_suffix("}}")?;
    let (file, anchor) = include.split_once(':').unwrap_or((include, ""));
    let Ok(source) = fs::read_to_string(page.parent()?.join(file)) else {
        return Some(format!("{file} does not exist; correct the path"));
    };
    let has = |mark: &str| source.lines().any(|line| line.trim() == format!("// {mark}: {anchor}"));
    let is_whole = anchor.is_empty() || has("ANCHOR") && has("ANCHOR_END");
    (!is_whole)
        .then(|| format!("{file} has no anchor `{anchor}`; add it around what the page shows"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_include_without_its_anchor_is_found() {
        let page = root().join(PAGES).join("page.md");
        let include =
            |name: &str| format!("{{{{#include ../../../xtask/src/tidy/book.rs{name}}}}}");
        // ANCHOR: shown
        assert_eq!(problem(&page, &include(":shown")), None);
        // ANCHOR_END: shown
        assert_eq!(problem(&page, &include("")), None);
        assert!(problem(&page, &include(":hidden")).is_some());
        assert!(problem(&page, "{{#include nowhere.rs}}").is_some());
        assert_eq!(problem(&page, "a sentence"), None);
    }
}
