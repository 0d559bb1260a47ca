//! The pages in Markdown: every chapter is in the summary, every program in a chapter is a doctest,
//! and every relative link leads to a file and a heading that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

fn repository() -> PathBuf {
    crate::root().canonicalize().unwrap()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The Markdown files below a directory.
fn pages(directory: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.insert(path);
        }
    }
}

/// The lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence && !line.starts_with("    ")
    })
}

/// The targets of the links in a page.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        for part in line.split("](").skip(1) {
            let target = part.split(')').next().unwrap();
            if !target.contains("://") {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let anchor = |line: &str| -> String {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// Removes `.` and `..`, without following links.
fn normalized(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => assert!(normal.pop()),
            other => normal.push(other),
        }
    }
    normal
}

#[test]
fn links_lead_to_existing_files_and_headings() {
    let root = repository();
    let mut found = BTreeSet::new();
    pages(&root.join("docs"), &mut found);
    for name in [
        "README",
        "ARCHITECTURE",
        "CONTRIBUTING",
        "CHANGELOG",
        "SECURITY",
        "benches/README",
        "benches/RESULTS",
    ] {
        found.insert(root.join(name).with_extension("md"));
    }
    let book = root.join("docs/book/src");
    let mut broken = Vec::new();
    for page in &found {
        for link in links(&read(page)) {
            let (file, anchor) =
                link.split_once('#').map_or((&link[..], None), |(f, a)| (f, Some(a)));
            let target = match file {
                "" => page.clone(),
                _ => normalized(&page.parent().unwrap().join(file)),
            };
            let exists = target.exists()
                && anchor.is_none_or(|anchor| anchors(&read(&target)).contains(anchor));
            // What lies outside of the book is not where the book is read.
            if !exists || page.starts_with(&book) && !target.starts_with(&book) {
                broken.push(format!("{}: {link}", page.strip_prefix(&root).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn the_summary_lists_every_chapter() {
    let book = repository().join("docs/book/src");
    let mut files = BTreeSet::new();
    pages(&book, &mut files);
    let summary = book.join("SUMMARY.md");
    assert!(files.remove(&summary));
    let listed: BTreeSet<_> = links(&read(&summary)).iter().map(|link| book.join(link)).collect();
    assert_eq!(listed, files);
}

/// The first lines of the programs that a page shows. (What a page copies from another program is
/// compiled with that program.)
fn programs(text: &str) -> Vec<&str> {
    let lines: Vec<_> = text.lines().collect();
    let starts = lines
        .windows(2)
        .filter(|lines| lines[1].starts_with("```rust") && !lines[0].starts_with("<!-- copy of "));
    starts.map(|lines| lines[1]).collect()
}

#[test]
fn every_program_of_the_book_is_a_doctest() {
    let root = repository();
    let lists = read(&root.join("crates/cringle/src/lib.rs"))
        + &read(&root.join("ecosystem/crates/src/lib.rs"));
    let mut files = BTreeSet::new();
    pages(&root.join("docs/book/src"), &mut files);
    let mut count = 0;
    for file in files {
        let (text, name) = (read(&file), file.strip_prefix(&root).unwrap().display());
        for start in programs(&text) {
            let runs = !start.contains("ignore") && !start.contains("no_run");
            assert!(runs, "{name}: a program that does not run: {start}");
            assert!(lists.contains(&name.to_string()), "{name} is not among the doctests");
            count += 1;
        }
    }
    assert!(count > 50, "only {count} programs were found");
}
