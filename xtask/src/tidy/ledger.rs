//! `cargo xtask tidy --ledger`: what a reader has to hold in mind. No rule, but figures: lines of
//! code by room, names with several meanings, and files with several subjects.

use super::sources::Source;
use super::{budgets, rooms};
use crate::Result;
use crate::crates::{self, CRATES, Crate};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::AddAssign;

/// Types of one crate that share their name are listed from this number on.
const MANY: usize = 3;
/// A subject has at least as many lines of code.
const SUBJECT: usize = 60;

pub(super) fn print(sources: &[Source]) -> Result<()> {
    let mut rooms: BTreeMap<String, Lines> = BTreeMap::new();
    let mut names: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    let mut divided = Vec::new();
    for source in sources {
        let file = syn::parse_file(&source.text).map_err(|e| format!("{}: {e}", source.path))?;
        *rooms.entry(room_of(&source.path)).or_default() += lines_of(source, &file);
        if is_test(&source.path) {
            continue;
        }
        let items = file.items.iter().filter(|item| !is_for_tests(item));
        for name in items.filter_map(name_of_type) {
            names.entry((crate_of(&source.path), name)).or_default().push(&source.path);
        }
        let subjects = subjects(&file);
        if subjects.len() > 1 {
            divided.push((&source.path, subjects));
        }
    }
    println!("{}", Table(&rooms));
    println!("Lines of code below src, of the budget:");
    let lines = budgets::lines(sources)?;
    for Crate { folder, budget, reason, .. } in CRATES {
        let lines = lines.get(folder).copied().unwrap_or_default();
        println!("  {folder:<30} {lines:>6} of {budget:>6}  {reason}");
    }
    println!("Types of one crate with the same name:");
    for ((of, name), files) in names.iter().filter(|(_, files)| files.len() >= MANY) {
        println!("  {name} x{} in {of}: {}", files.len(), files.join(", "));
    }
    println!("Files with parts that do not refer to each other:");
    for (path, subjects) in divided {
        println!("  {path}: {}", subjects.join("; "));
    }
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

/// Returns the number of lines of code of a file.
pub(super) fn code_of(source: &Source) -> Result<usize> {
    let file = syn::parse_file(&source.text).map_err(|e| format!("{}: {e}", source.path))?;
    Ok(lines_of(source, &file).code)
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

/// The crate of a file: the path of its folder.
fn crate_of(path: &str) -> &str {
    let inside = ["/src/", "/tests/", "/examples/", "/bench/", "/build.rs"];
    let end = inside.iter().filter_map(|part| path.find(part)).min();
    &path[..end.unwrap_or(path.len())]
}

/// The crate of a file, and for the library the folder below `src`.
fn room_of(path: &str) -> String {
    let of_library = crates::of(path).filter(|it| it.is_of_library());
    let file = of_library.and_then(|it| Some((it.folder, it.file(path)?)));
    match file.and_then(|(folder, file)| Some((folder, file.split_once('/')?))) {
        Some((folder, (room, _))) => format!("{folder} {room}"),
        None => crate_of(path).to_owned(),
    }
}

fn name_of_type(item: &syn::Item) -> Option<String> {
    match item {
        syn::Item::Struct(item) => Some(item.ident.to_string()),
        syn::Item::Enum(item) => Some(item.ident.to_string()),
        syn::Item::Union(item) => Some(item.ident.to_string()),
        syn::Item::Trait(item) => Some(item.ident.to_string()),
        _ => None,
    }
}

/// A part of a file: an item with the implementations of it.
struct Part {
    name: String,
    lines: usize,
    words: BTreeSet<String>,
}

/// Returns the subjects of a file: the largest items of parts that do not refer to each other, with
/// the lines of code.
fn subjects(file: &syn::File) -> Vec<String> {
    let mut parts: Vec<Part> = Vec::new();
    for item in file.items.iter().filter(|item| !is_for_tests(item)) {
        let Some(name) = name_of(item) else { continue };
        let (mut lines, mut words) = (BTreeSet::new(), BTreeSet::new());
        note_lines(item.to_token_stream(), &mut lines);
        note_words(item.to_token_stream(), &mut words);
        match parts.iter_mut().find(|part| part.name == name) {
            Some(part) => {
                part.lines += lines.len();
                part.words.extend(words);
            }
            None => parts.push(Part { name, lines: lines.len(), words }),
        }
    }
    let mut subjects = Vec::new();
    while let Some(first) = parts.pop() {
        let mut subject = vec![first];
        let mut next = 0;
        while let Some(part) = subject.get(next) {
            let (words, name) = (part.words.clone(), part.name.clone());
            let refers =
                |other: &mut Part| words.contains(&other.name) || other.words.contains(&name);
            subject.extend(parts.extract_if(.., refers).collect::<Vec<_>>());
            next += 1;
        }
        let lines: usize = subject.iter().map(|part| part.lines).sum();
        if lines >= SUBJECT {
            let largest = subject.iter().max_by_key(|part| part.lines).expect("it has its first");
            subjects.push(format!("`{}` {lines}", largest.name));
        }
    }
    subjects.sort();
    subjects
}

/// The name by which other items refer to an item. An implementation is a part of its type.
fn name_of(item: &syn::Item) -> Option<String> {
    match item {
        syn::Item::Fn(item) => Some(item.sig.ident.to_string()),
        syn::Item::Const(item) => Some(item.ident.to_string()),
        syn::Item::Static(item) => Some(item.ident.to_string()),
        syn::Item::Type(item) => Some(item.ident.to_string()),
        syn::Item::Macro(item) => {
            let name = item.ident.as_ref().or(item.mac.path.get_ident());
            name.map(ToString::to_string)
        }
        syn::Item::Impl(item) => match &*item.self_ty {
            syn::Type::Path(of) => of.path.segments.last().map(|part| part.ident.to_string()),
            _ => None,
        },
        item => name_of_type(item),
    }
}

fn note_words(tokens: TokenStream, words: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => note_words(group.stream(), words),
            TokenTree::Ident(word) => {
                words.insert(word.to_string());
            }
            _ => (),
        }
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
    fn parts_that_do_not_refer_to_each_other_are_subjects() {
        let body = "    work();\n".repeat(SUBJECT);
        let two = format!("struct A; impl A {{ fn f() {{\n{body} }} }}\nfn b() {{\n{body} }}\n");
        let one = format!("{two}fn c() {{ b(); A::f() }}\n");
        assert_eq!(subjects(&parsed(&two).1).len(), 2);
        assert_eq!(subjects(&parsed(&one).1), [format!("`A` {}", 2 * SUBJECT + 6)]);
    }

    #[test]
    fn rooms_are_those_of_the_library() {
        assert_eq!(room_of("crates/cringle-std/src/fs/file/mod.rs"), "crates/cringle-std fs");
        assert_eq!(room_of("crates/cringle-core/src/shared.rs"), "crates/cringle-core");
        assert_eq!(room_of("crates/cringle/src/lib.rs"), "crates/cringle");
        assert_eq!(room_of("crates/cringle-cp/src/walk/mod.rs"), "crates/cringle-cp");
        assert_eq!(room_of("xtask/src/main.rs"), "xtask");
    }
}
