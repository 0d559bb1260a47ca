//! Warns about words that make a sentence hard to read.

use super::sources::Source;

const AVOID: [(&str, &str); 14] = [
    ("nobody", "say which: no caller, no fiber"),
    ("somebody", "say who"),
    ("whoever", "say who"),
    ("told", "reported, printed, returned"),
    ("tells", "reports, prints, returns"),
    ("so many", "the number"),
    ("in all", "total"),
    ("in vain", "without success"),
    ("come what may", "always"),
    ("all the same", "still"),
    ("goes on", "continues"),
    ("go on", "continue"),
    ("comes to", "results in"),
    ("thing", "name it"),
];

/// Prints each such word in a comment with a better one.
pub(super) fn warn(sources: &[Source]) {
    for source in sources {
        for (number, line) in source.lines() {
            let Some((_, comment)) = line.split_once("//") else { continue };
            let comment = format!(" {} ", comment.to_lowercase());
            for (word, better) in AVOID {
                if comment.contains(&format!(" {word} ")) {
                    println!("{}:{number}: warning: \"{word}\": {better}", source.path);
                }
            }
        }
    }
}
