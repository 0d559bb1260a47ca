//! Limits the width of lines and the length of files.

use super::Finding;
use super::exceptions::Exceptions;
use super::sources::Source;

const COLUMNS: usize = 100;
const LINES: usize = 500;

pub(super) fn check(source: &Source, exceptions: &Exceptions, findings: &mut Vec<Finding>) {
    for (number, line) in source.lines() {
        let columns = line.chars().count();
        if columns > COLUMNS && !is_text(line) && !exceptions.allow(&source.path) {
            let text = format!("{columns} columns, the limit is {COLUMNS}; break the line");
            findings.push(Finding::new(source, number, text));
        }
    }
    let lines = source.text.lines().count();
    if lines > LINES && !exceptions.allow(&source.path) {
        let text = format!("{lines} lines, the limit is {LINES}; split the file by what it is for");
        findings.push(Finding::new(source, 1, text));
    }
}

/// A string, an address or a row of a table, which cannot be broken.
fn is_text(line: &str) -> bool {
    let comment = line.trim_start().trim_start_matches('/').trim_start_matches(['!', ' ']);
    comment.starts_with('|') || ["http://", "https://", "\""].iter().any(|text| line.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        let mut findings = Vec::new();
        check(&Source::new("a.rs", text), &Exceptions::none(), &mut findings);
        findings.len()
    }

    #[test]
    fn long_lines_and_files_are_found() {
        assert_eq!(found(&"x".repeat(COLUMNS)), 0);
        assert_eq!(found(&"x".repeat(COLUMNS + 1)), 1);
        assert_eq!(found(&format!("// https://{}", "x".repeat(COLUMNS))), 0);
        assert_eq!(found(&"x\n".repeat(LINES)), 0);
        assert_eq!(found(&"x\n".repeat(LINES + 1)), 1);
    }
}
