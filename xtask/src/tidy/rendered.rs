//! The rendered documentation names no invariant: their numbers are for readers of the source.

use super::Finding;
use super::sources::{documentation, files, root};
use crate::Result;
use crate::crates::{CRATES, Kind};
use std::fs;

/// Checks the documentation of the published libraries, which `cargo doc` has written. (The parts
/// of the library are published for it alone; what it re-exports is among its own pages.)
pub(super) fn check(findings: &mut Vec<Finding>) -> Result<()> {
    let documentation = documentation();
    for library in published()? {
        let mut pages = Vec::new();
        let directory = documentation.join(&library);
        files(&directory, "html", &mut pages).map_err(|error| {
            let what = "cargo doc --workspace --no-deps --all-features";
            format!("{}: {error}; run `{what}` first", directory.display())
        })?;
        for page in pages {
            for name in names(&text_of(&fs::read_to_string(&page)?)) {
                let file = page.strip_prefix(&documentation).unwrap_or(&page).display();
                findings.push(Finding {
                    file: format!("target/doc/{file}"),
                    line: 1,
                    text: format!("names the invariant {name}; say what it promises instead"),
                });
            }
        }
    }
    Ok(())
}

/// The names under which the published libraries are imported.
fn published() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for it in CRATES.iter().filter(|it| it.kind != Kind::Part) {
        let folder = root().join(it.folder);
        let manifest = fs::read_to_string(folder.join("Cargo.toml"))?;
        if folder.join("src/lib.rs").exists() && !manifest.contains("publish = false") {
            names.push(it.import());
        }
    }
    Ok(names)
}

/// Removes the tags.
fn text_of(html: &str) -> String {
    let parts = html.split('<').enumerate();
    parts
        .map(|(n, part)| if n == 0 { part } else { part.split_once('>').map_or("", |p| p.1) })
        .collect()
}

/// Returns the words `I1` to `I99`.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| {
        word.strip_prefix('I').is_some_and(|number| {
            matches!(number.len(), 1 | 2) && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_invariants_are_found() {
        let html = "<p>unwinds (<strong>I8</strong>), and I12.</p><a title=\"I3\">AtomicI16</a>";
        assert!(names(&text_of(html)).eq(["I8", "I12"]));
    }
}
