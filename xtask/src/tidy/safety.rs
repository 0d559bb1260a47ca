//! Requires every `// SAFETY:` comment of the library to name its reason: an invariant of
//! ARCHITECTURE.md (I1 and so on), or one of the plain reasons that need no invariant.

use super::Finding;
use super::sources::Source;
use crate::crates::{self, Crate};

/// Reasons that need no invariant.
const PLAIN: [&str; 8] = [
    "contract",
    "no pointer",
    "no memory",
    "borrowed",
    "borrows",
    "all-zero",
    "newly opened",
    "as above",
];

pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    if !crates::of(&source.path).is_some_and(Crate::is_of_library) {
        return;
    }
    let lines: Vec<&str> = source.text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let Some((_, first)) = line.split_once("// SAFETY:") else { continue };
        let rest = lines[index + 1..].iter().map(|line| line.trim());
        let rest = rest.take_while(|line| line.starts_with("//")).collect::<Vec<_>>().join(" ");
        let comment = format!("{first} {rest}");
        if !names_an_invariant(&comment) && !PLAIN.iter().any(|plain| comment.contains(plain)) {
            let text = "this SAFETY comment names no invariant (I1, …) and no contract; \
                        say what the code rests on";
            findings.push(Finding::new(source, index + 1, text));
        }
    }
}

fn names_an_invariant(comment: &str) -> bool {
    let words = comment.split(|c: char| !c.is_ascii_alphanumeric());
    words.into_iter().any(|word| {
        let number = word.strip_prefix('I').and_then(|number| number.parse::<u32>().ok());
        number.is_some_and(|number| (1..=16).contains(&number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(comment: &str) -> usize {
        found_in("crates/cringle-core/src/a.rs", comment)
    }

    fn found_in(path: &str, comment: &str) -> usize {
        let mut findings = Vec::new();
        check(&Source::new(path, comment), &mut findings);
        findings.len()
    }

    #[test]
    fn a_safety_comment_needs_a_reason() {
        assert_eq!(found("// SAFETY: it is fine."), 1);
        assert_eq!(found("// SAFETY: it is fine, by **I3**."), 0);
        assert_eq!(found("// SAFETY: it is fine,\n// by I14."), 0);
        assert_eq!(found("// SAFETY: it is I17."), 1);
        assert_eq!(found("// SAFETY: by the caller's contract."), 0);
    }
    #[test]
    fn only_the_library_names_invariants() {
        assert_eq!(found_in("crates/cringle-interpose/src/a.rs", "// SAFETY: it is fine."), 1);
        assert_eq!(found_in("crates/cringle-c/src/a.rs", "// SAFETY: it is fine."), 0);
    }
}
