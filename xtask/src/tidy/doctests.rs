//! Checks that no test is left out: a crate without examples in its documentation has `doctest =
//! false`, which saves a call of rustdoc, and one without unit tests `test = false`, which saves a
//! program. cargo would then skip an example or a unit test silently.

use super::Finding;
use super::sources::{Source, root};
use crate::Result;

/// Finds tests in the crates whose manifests exclude them.
pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) -> Result<()> {
    for entry in std::fs::read_dir(root().join("crates"))? {
        let entry = entry?;
        let manifest = std::fs::read_to_string(entry.path().join("Cargo.toml"))?;
        let directory = format!("crates/{}/src/", entry.file_name().display());
        let of_crate = sources.iter().filter(|source| source.path.starts_with(&directory));
        let (examples, tests) =
            (excludes(&manifest, "doctest = false"), excludes(&manifest, "test = false"));
        for source in of_crate {
            findings.extend(examples.then(|| first_example(source)).flatten());
            findings.extend(tests.then(|| first_test(source)).flatten());
        }
    }
    Ok(())
}

/// Whether a manifest has this line for its library.
fn excludes(manifest: &str, line: &str) -> bool {
    let of_library = manifest.lines().skip_while(|line| *line != "[lib]").skip(1);
    of_library.take_while(|line| !line.starts_with('[')).any(|it| it == line)
}

fn first_test(source: &Source) -> Option<Finding> {
    let (line, _) = source.lines().find(|(_, line)| line.trim() == "#[test]")?;
    let text = "this crate's unit tests are not run; remove `test = false` from its Cargo.toml";
    Some(Finding::new(source, line, text))
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

    #[test]
    fn unit_test_is_found() {
        let line_of = |text| first_test(&Source::new("a.rs", text)).map(|finding| finding.line);
        assert_eq!(line_of("fn f() {}\nmod tests {\n    #[test]\n    fn t() {}\n}\n"), Some(3));
        assert_eq!(line_of("/// `#[test]`\nfn f() {}\n"), None);
    }

    #[test]
    fn only_the_settings_of_the_library_exclude() {
        let manifest =
            "[package]\nname = \"a\"\n\n[lib]\ntest = false\n\n[[bin]]\ndoctest = false\n";
        assert!(excludes(manifest, "test = false") && !excludes(manifest, "doctest = false"));
        assert!(!excludes("[[test]]\ntest = false\n", "test = false"));
    }
}
