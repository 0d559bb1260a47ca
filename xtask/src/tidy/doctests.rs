//! Checks that no example is left out: a crate without examples in its documentation has `doctest =
//! false`, which saves a call of rustdoc, and cargo would then skip an example silently.

use super::Finding;
use super::sources::{Source, root};
use crate::Result;

/// Finds examples in the crates whose manifests exclude them.
pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) -> Result<()> {
    for entry in std::fs::read_dir(root().join("crates"))? {
        let entry = entry?;
        let manifest = std::fs::read_to_string(entry.path().join("Cargo.toml"))?;
        if manifest.lines().any(|line| line == "doctest = false") {
            let directory = format!("crates/{}/src/", entry.file_name().display());
            let of_crate = sources.iter().filter(|source| source.path.starts_with(&directory));
            findings.extend(of_crate.filter_map(first_example));
        }
    }
    Ok(())
}

fn first_example(source: &Source) -> Option<Finding> {
    let is_example = |line: &str| {
        let text = line.trim_start();
        ["/// ```", "//! ```"].iter().any(|fence| text.starts_with(fence))
            || text.contains("doc = include_str!")
    };
    let (line, _) = source.lines().find(|(_, line)| is_example(line))?;
    let text = "this crate's examples are not tested; remove `doctest = false` from its Cargo.toml";
    Some(Finding::new(source, line, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_in_any_comment_of_documentation_is_found() {
        let line_of = |text| first_example(&Source::new("a.rs", text)).map(|finding| finding.line);
        assert_eq!(line_of("//! A crate.\n\n//! ```\n//! f();\n//! ```\n"), Some(3));
        assert_eq!(line_of("struct A;\nimpl A {\n    /// ```no_run\n    fn f() {}\n}\n"), Some(3));
        assert_eq!(line_of("#[doc = include_str!(\"page.md\")]\nstruct Page;\n"), Some(1));
        assert_eq!(line_of("/// Returns `a`.\nfn f() {\n    // ```\n}\n"), None);
    }
}
