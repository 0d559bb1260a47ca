//! The book's copies of parts of sources are current. (mdBook would include them, but the pages are
//! read as they are, too.) A copy follows a line that names its source:
//!
//! ````text
//! <!-- copy of crates/cringle/examples/hash.rs:program -->
//! ```rust,ignore
//! …
//! ```
//! ````

use super::Finding;
use super::sources::{files, root};
use crate::Result;
use std::fs;

const PAGES: &str = "docs/book/src";

/// Compares the copies with their sources, or renews them.
pub(super) fn check(renews: bool, findings: &mut Vec<Finding>) -> Result<()> {
    let mut pages = Vec::new();
    files(&root().join(PAGES), "md", &mut pages)?;
    for page in pages {
        let text = fs::read_to_string(&page)?;
        let file = page.strip_prefix(root()).unwrap_or(&page).display().to_string();
        match with_current_copies(&text) {
            Err((line, text)) => findings.push(Finding { file, line, text }),
            Ok(current) if current == text => {}
            Ok(current) if renews => fs::write(&page, current)?,
            Ok(current) => {
                let same = text.lines().zip(current.lines()).take_while(|(a, b)| a == b).count();
                let text = "a copy is not current; run `cargo xtask tidy --copies`".to_owned();
                findings.push(Finding { file, line: same + 1, text });
            }
        }
    }
    Ok(())
}

/// Returns the page with what its copies should be. The error is that of a line.
fn with_current_copies(page: &str) -> std::result::Result<String, (usize, String)> {
    let mut current = String::new();
    let mut lines = page.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        current += line;
        current += "\n";
        if line.trim().starts_with("{{#") {
            let text = "write `<!-- copy of FILE:PART -->`, and run `cargo xtask tidy --copies`";
            return Err((index + 1, text.to_owned()));
        }
        let mark = line.strip_prefix("<!-- copy of ").and_then(|rest| rest.strip_suffix(" -->"));
        let Some(mark) = mark else { continue };
        let part = part_of(mark).map_err(|text| (index + 1, text))?;
        let fence = lines.next().map(|(_, line)| line).filter(|line| line.starts_with("```"));
        let Some(fence) = fence else {
            return Err((index + 1, "no code follows; write a fence".to_owned()));
        };
        lines.by_ref().find(|(_, line)| *line == "```");
        current += &format!("{fence}\n{part}```\n");
    }
    Ok(current)
}

/// Returns the lines of `FILE:PART`, between the marks `ANCHOR: PART` and `ANCHOR_END: PART`.
fn part_of(mark: &str) -> std::result::Result<String, String> {
    let (file, part) = mark.split_once(':').ok_or("name a part: FILE:PART")?;
    let source = fs::read_to_string(root().join(file))
        .map_err(|e| format!("cannot read {file}: {e}; correct the path"))?;
    let is = |line: &str, mark: &str| line.trim() == format!("// {mark}: {part}");
    let mut lines = source.lines().skip_while(|line| !is(line, "ANCHOR")).skip(1);
    let has_end = source.lines().any(|line| is(line, "ANCHOR_END"));
    let mut text = String::new();
    for line in lines.by_ref().take_while(|line| !is(line, "ANCHOR_END")) {
        if !line.trim().starts_with("// ANCHOR") {
            text += line;
            text += "\n";
        }
    }
    if text.is_empty() || !has_end {
        return Err(format!("{file} has no anchor `{part}`; add it around what the page shows"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_renewed() {
        // ANCHOR: shown
        let shown = 1;
        // ANCHOR_END: shown
        let source = "xtask/src/tidy/book.rs";
        let page = |code: &str, part: &str| {
            format!("Text\n<!-- copy of {source}:{part} -->\n```rust\n{code}```\nMore\n")
        };
        let current = page("        let shown = 1;\n", "shown");
        assert_eq!(with_current_copies(&page("old\n", "shown")), Ok(current.clone()));
        assert_eq!(with_current_copies(&current), Ok(current));
        assert_eq!(with_current_copies(&page("", "hidden")).unwrap_err().0, 2);
        assert_eq!(with_current_copies("<!-- copy of nowhere.rs:a -->\n").unwrap_err().0, 1);
        let include = format!("{{{{#include {source}:shown}}}}\n");
        assert_eq!(with_current_copies(&include).unwrap_err().0, shown);
    }
}
