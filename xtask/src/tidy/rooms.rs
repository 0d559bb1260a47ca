//! Checks the imports between the library's rooms (its top-level modules): arrows point down, as in
//! ARCHITECTURE.md, and no two files of different rooms depend on each other.

use super::Finding;
use super::sources::Source;
use crate::Result;
use std::collections::{BTreeMap, BTreeSet};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};

pub(super) const LIBRARY: &str = "crates/cringle/src/";

/// Each room with the rooms that it may use, from the bottom up.
const ROOMS: [(&str, &[&str]); 23] = [
    ("sys", &[]),
    ("tracing_events", &[]),
    ("trace", &["sys"]),
    // `driver::dispatch` chooses one of the three.
    ("driver", &["driver::epoll", "driver::sim", "driver::uring", "sys", "trace"]),
    ("driver::epoll", &["driver", "sys"]),
    ("driver::sim", &["driver", "sys"]),
    ("driver::uring", &["driver", "sys", "trace"]),
    (
        "runtime",
        &[
            "driver",
            "driver::epoll",
            "driver::sim",
            "driver::uring",
            "sys",
            "trace",
            "tracing_events",
        ],
    ),
    ("cancel", &["runtime"]),
    ("detect", &["runtime"]),
    ("sync", &["runtime", "sys"]),
    ("fiber", &["driver", "runtime", "sync", "sys", "tracing_events"]),
    ("time", &["fiber", "runtime"]),
    ("ring", &["driver", "driver::uring", "fiber", "runtime", "sys"]),
    ("io", &["driver", "fiber", "fs", "runtime", "sync", "sys"]),
    ("fs", &["driver", "fiber", "io", "runtime", "sync", "sys", "time"]),
    ("block", &["driver", "driver::uring", "fiber", "fs", "runtime", "sync", "sys"]),
    ("signal", &["io", "runtime", "sys"]),
    ("net", &["cancel", "driver", "fiber", "io", "os", "runtime", "sync", "sys", "time"]),
    ("process", &["fiber", "fs", "io", "runtime", "sys"]),
    ("interpose", &["driver", "fiber", "fs", "process", "runtime", "sync", "sys"]),
    ("os", &["fs", "net", "process"]),
    ("sim", &["cancel", "driver::sim", "fs", "runtime", "sys"]),
];

/// An import, or a path in code.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone)]
struct Use {
    file: String,
    line: usize,
    /// The named module, from the crate's root: `driver::epoll::wait_queues`.
    module: Vec<String>,
}

pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) -> Result<()> {
    let library = sources.iter().filter(|source| source.path.starts_with(LIBRARY));
    let library = library.filter(|source| !source.path.ends_with("tests.rs"));
    let modules: BTreeMap<Vec<String>, &str> =
        library.clone().map(|source| (module_of(&source.path), source.path.as_str())).collect();
    let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in library {
        let from = room(&module_of(&source.path));
        for one in uses(source)? {
            let Some((module, file)) = file_of(&modules, &one.module) else { continue };
            let to = room(module);
            if to == from || from == "lib" {
                continue;
            }
            arrows.entry(&source.path).or_default().insert(file);
            if !may_use(&from, &to) {
                let text = format!(
                    "room `{from}` uses room `{to}`; move the shared part down, or allow the \
                     arrow in ROOMS (xtask/src/tidy/rooms.rs)"
                );
                findings.push(Finding::new(source, one.line, text));
            }
        }
    }
    find_cycles(&arrows, findings);
    Ok(())
}

fn may_use(from: &str, to: &str) -> bool {
    ROOMS.iter().any(|(room, may)| *room == from && may.contains(&to))
}

/// Returns the file of a module's path: that of its longest prefix that is a file.
fn file_of<'m>(
    modules: &'m BTreeMap<Vec<String>, &'m str>,
    module: &[String],
) -> Option<(&'m [String], &'m str)> {
    let lengths = (1..=module.len()).rev();
    let found = lengths.filter_map(|length| modules.get_key_value(&module[..length])).next();
    found.map(|(module, file)| (module.as_slice(), *file))
}

/// Reports files of different rooms that use each other, directly or through other files.
fn find_cycles(arrows: &BTreeMap<&str, BTreeSet<&str>>, findings: &mut Vec<Finding>) {
    for start in arrows.keys() {
        let (mut seen, mut next) = (BTreeSet::new(), vec![*start]);
        while let Some(file) = next.pop() {
            for to in arrows.get(file).into_iter().flatten() {
                if to == start {
                    let text =
                        format!("in a cycle of imports, through {file}; move the shared part down");
                    findings.push(Finding { file: (*start).into(), line: 1, text });
                    return;
                }
                if seen.insert(*to) {
                    next.push(to);
                }
            }
        }
    }
}

/// Returns the module of a file: `crates/cringle/src/driver/epoll/mod.rs` is `driver::epoll`.
fn module_of(path: &str) -> Vec<String> {
    let path = path.trim_start_matches(LIBRARY).trim_end_matches(".rs");
    let parts = path.split('/').filter(|part| !matches!(*part, "mod" | "lib"));
    parts.map(String::from).collect()
}

/// Returns the room of a module: the first part of its path, and for a driver the second.
fn room(module: &[String]) -> String {
    match module {
        [] => "lib".into(),
        [driver, which, ..]
            if driver == "driver" && matches!(which.as_str(), "uring" | "epoll" | "sim") =>
        {
            format!("driver::{which}")
        }
        [first, ..] => first.clone(),
    }
}

fn uses(source: &Source) -> Result<Vec<Use>> {
    let file = syn::parse_file(&source.text).map_err(|e| format!("{}: {e}", source.path))?;
    let module = module_of(&source.path);
    let mut visitor = Uses { source, module, found: Vec::new() };
    visitor.visit_file(&file);
    Ok(visitor.found)
}

struct Uses<'a> {
    source: &'a Source,
    /// The module that the visitor is in.
    module: Vec<String>,
    found: Vec<Use>,
}

impl Uses<'_> {
    fn note(&mut self, line: usize, names: &[String]) {
        let module = match names.first().map(String::as_str) {
            Some("crate") => names[1..].to_vec(),
            Some("super") => {
                let ups = names.iter().take_while(|name| *name == "super").count();
                let Some(above) = self.module.len().checked_sub(ups) else { return };
                [&self.module[..above], &names[ups..]].concat()
            }
            _ => return,
        };
        if module.is_empty() {
            return;
        }
        self.found.push(Use { file: self.source.path.clone(), line, module });
    }

    fn note_tree(&mut self, before: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.note_tree(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|one| self.note_tree(before, one));
            }
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                before.push(ident.to_string());
                self.note(ident.span().start().line, before);
                before.pop();
            }
            syn::UseTree::Glob(glob) => {
                self.note(syn::spanned::Spanned::span(glob).start().line, before);
            }
        }
    }
}

pub(super) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Meta>().is_ok_and(|condition| needs_test(&condition))
    })
}

/// Whether a condition holds in tests alone: `test`, or `all(test, …)`.
fn needs_test(condition: &syn::Meta) -> bool {
    match condition {
        syn::Meta::Path(name) => name.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("all") => {
            let parts = list.parse_args_with(Punctuated::<_, syn::Token![,]>::parse_terminated);
            parts.is_ok_and(|parts| parts.iter().any(needs_test))
        }
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_for_tests(&item.attrs) {
            return;
        }
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.note_tree(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if let Some(first) = path.segments.first() {
            self.note(first.ident.span().start().line, &names);
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Finding> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| Source::new(&format!("{LIBRARY}{path}"), text))
            .collect();
        let mut findings = Vec::new();
        check(&sources, &mut findings).unwrap();
        findings
    }

    #[test]
    fn an_arrow_that_points_up_is_found() {
        let files = |uses| [("sync/mod.rs", ""), ("runtime/turn.rs", uses), ("sys.rs", "")];
        assert_eq!(found(&files("use crate::sys;")), []);
        assert_eq!(found(&files("use crate::{sync::Mutex, sys};")).len(), 1);
        assert_eq!(found(&files("fn f() { super::super::sync::g(); }")).len(), 1);
        assert_eq!(found(&files("#[cfg(test)] mod tests { use crate::sync; }")), []);
        assert_eq!(found(&files("#[cfg(all(test, unix))] mod tests { use crate::sync; }")), []);
        assert_eq!(
            found(&files("#[cfg(any(test, unix))] mod model { use crate::sync; }")).len(),
            1
        );
    }

    #[test]
    fn a_cycle_of_files_is_found() {
        let files =
            [("io/copy.rs", "use crate::fs::file::File;"), ("fs/file.rs", "use crate::io::copy;")];
        assert_eq!(found(&files).len(), 1);
    }
}
