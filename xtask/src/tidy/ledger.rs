//! `cargo xtask tidy --ledger`: what a reader has to hold in mind. No rule, but figures: lines of
//! code by room.

use super::rooms;
use super::sources::Source;
use crate::Result;
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::AddAssign;

pub(super) fn print(sources: &[Source]) -> Result<()> {
    let mut rooms: BTreeMap<String, Lines> = BTreeMap::new();
    for source in sources {
        let file = syn::parse_file(&source.text).map_err(|e| format!("{}: {e}", source.path))?;
        *rooms.entry(room_of(&source.path)).or_default() += lines_of(source, &file);
    }
    println!("{}", Table(&rooms));
    Ok(())
}

/// The lines of a file, or of many.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Lines {
    files: usize,
    code: usize,
    /// Comments of the documentation.
    doc: usize,
    comments: usize,
    /// Every line of a test, and of what only tests use.
    tests: usize,
}

impl AddAssign for Lines {
    fn add_assign(&mut self, other: Lines) {
        self.files += other.files;
        self.code += other.code;
        self.doc += other.doc;
        self.comments += other.comments;
        self.tests += other.tests;
    }
}

fn lines_of(source: &Source, file: &syn::File) -> Lines {
    let mut lines = Lines { files: 1, ..Lines::default() };
    let whole = is_test(&source.path);
    let (mut code, mut tests) = (BTreeSet::new(), BTreeSet::new());
    for item in &file.items {
        let place = if is_for_tests(item) { &mut tests } else { &mut code };
        note_lines(item.to_token_stream(), place);
    }
    for (number, line) in source.lines() {
        let line = line.trim_start();
        let kind = match line {
            "" => continue,
            _ if whole || tests.contains(&number) => &mut lines.tests,
            _ if line.starts_with("///") || line.starts_with("//!") => &mut lines.doc,
            _ if line.starts_with("//") => &mut lines.comments,
            _ if code.contains(&number) => &mut lines.code,
            _ => continue,
        };
        *kind += 1;
    }
    lines
}

/// Notes the lines that have a token. (A comment of the documentation is one, too.)
fn note_lines(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                lines.insert(group.span_open().start().line);
                lines.insert(group.span_close().end().line);
                note_lines(group.stream(), lines);
            }
            token => lines.extend(token.span().start().line..=token.span().end().line),
        }
    }
}

fn is_test(path: &str) -> bool {
    path.ends_with("tests.rs")
        || path.starts_with("ecosystem/")
        || path.starts_with("crates/testing/")
        || path.split('/').any(|part| part == "tests")
}

fn is_for_tests(item: &syn::Item) -> bool {
    let attributes = match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => return false,
    };
    rooms::is_for_tests(attributes)
}

/// The crate of a file, and for the library the room.
fn room_of(path: &str) -> String {
    let inside = ["/src/", "/tests/", "/examples/", "/bench/", "/build.rs"];
    let end = inside.iter().filter_map(|part| path.find(part)).min();
    let of = &path[..end.unwrap_or(path.len())];
    match path.strip_prefix(rooms::LIBRARY).map(|file| file.split_once('/')) {
        Some(Some((room, _))) => format!("{of} {room}"),
        _ => of.to_owned(),
    }
}

struct Table<'a>(&'a BTreeMap<String, Lines>);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, name: &str, lines: &Lines| {
            let Lines { files, code, doc, comments, tests } = lines;
            writeln!(f, "{name:<34} {files:>6} {code:>8} {doc:>8} {comments:>8} {tests:>8}")
        };
        writeln!(
            f,
            "{:<34} {:>6} {:>8} {:>8} {:>8} {:>8}",
            "", "files", "code", "doc", "comments", "tests"
        )?;
        let mut total = Lines::default();
        for (name, lines) in self.0 {
            row(f, name, lines)?;
            total += *lines;
        }
        row(f, "total", &total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Source, syn::File) {
        (Source::new("crates/a/src/a.rs", text), syn::parse_file(text).unwrap())
    }

    #[test]
    fn each_line_is_counted_once() {
        let (source, file) = parsed(
            "//! A module.\n\nuse a::b;\n\n/// A type.\n#[derive(Debug)]\nstruct A; // one\n\
             // More.\nfn f() {\n    // Why.\n    g(\"\n  text\");\n}\n#[cfg(test)]\nmod tests {\n\
             \n    fn t() {}\n}\n",
        );
        let expected = Lines { files: 1, code: 7, doc: 2, comments: 2, tests: 4 };
        assert_eq!(lines_of(&source, &file), expected);
        let (source, file) = (Source::new("crates/a/tests/a.rs", "fn f() {}\n\n// A\n"), file);
        assert_eq!(lines_of(&source, &file), Lines { files: 1, tests: 2, ..Lines::default() });
    }

    #[test]
    fn rooms_are_those_of_the_library() {
        assert_eq!(room_of("crates/cringle/src/fs/file/mod.rs"), "crates/cringle fs");
        assert_eq!(room_of("crates/cringle/src/lib.rs"), "crates/cringle");
        assert_eq!(room_of("crates/cringle-cp/src/walk/mod.rs"), "crates/cringle-cp");
        assert_eq!(room_of("xtask/src/main.rs"), "xtask");
    }
}
