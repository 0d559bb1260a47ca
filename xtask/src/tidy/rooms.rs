//! Checks the imports between the rooms of a crate, which are modules below its root: arrows point
//! down, as the table in `xtask/src/crates.rs` says, and no two files of different rooms depend on
//! each other. (Between crates, cargo allows no other arrows than those of the manifests.)

use super::Finding;
use super::sources::Source;
use crate::Result;
use crate::crates::{CRATES, Crate, REST};
use std::collections::{BTreeMap, BTreeSet};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};

/// An import, or a path in code.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone)]
struct Use {
    file: String,
    line: usize,
    /// The named module, from the crate's root: `driver::epoll::wait_queues`.
    module: Vec<String>,
}

pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) -> Result<()> {
    for of in CRATES.iter().filter(|of| !of.rooms.is_empty()) {
        check_crate(of, sources, findings)?;
    }
    Ok(())
}

fn check_crate(of: &Crate, sources: &[Source], findings: &mut Vec<Finding>) -> Result<()> {
    let inside = sources.iter().filter_map(|source| Some((source, module_of(of, &source.path)?)));
    let inside = inside.filter(|(source, _)| !source.path.ends_with("tests.rs"));
    let modules: BTreeMap<Vec<String>, &str> =
        inside.clone().map(|(source, module)| (module, source.path.as_str())).collect();
    let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (source, from_module) in inside {
        // `lib.rs` may name all rooms, and all may name its items.
        let Some(from) = room(of, &from_module) else { continue };
        for one in uses(source, from_module)? {
            let Some((module, file)) = file_of(&modules, &one.module) else { continue };
            let Some(to) = room(of, module).filter(|to| *to != from) else { continue };
            arrows.entry(&source.path).or_default().insert(file);
            if !may_use(of, from, to) {
                let text = format!(
                    "room `{from}` uses room `{to}`; move the shared part down, or allow the \
                     arrow in CRATES (xtask/src/crates.rs)"
                );
                findings.push(Finding::new(source, one.line, text));
            }
        }
    }
    find_cycles(&arrows, findings);
    Ok(())
}

fn may_use(of: &Crate, from: &str, to: &str) -> bool {
    of.rooms.iter().any(|(room, may)| *room == from && may.contains(&to))
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

/// Returns the module of a crate's file: `crates/cringle-driver/src/epoll/mod.rs` is `epoll`.
fn module_of(of: &Crate, path: &str) -> Option<Vec<String>> {
    let path = of.file(path)?.trim_end_matches(".rs");
    let parts = path.split('/').filter(|part| !matches!(*part, "mod" | "lib"));
    Some(parts.map(String::from).collect())
}

/// Returns the room of a module: the first part of its path, if that is one. The crate's root is in
/// no room.
fn room(of: &Crate, module: &[String]) -> Option<&'static str> {
    let first = module.first()?;
    let named = of.rooms.iter().find(|(name, _)| name == first);
    Some(named.map_or(REST, |(name, _)| name))
}

fn uses(source: &Source, module: Vec<String>) -> Result<Vec<Use>> {
    let file = syn::parse_file(&source.text).map_err(|e| format!("{}: {e}", source.path))?;
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
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(path, text)).collect();
        let mut findings = Vec::new();
        check(&sources, &mut findings).unwrap();
        findings
    }

    #[test]
    fn an_arrow_that_points_up_is_found() {
        let found = |uses| {
            found(&[
                ("crates/cringle-std/src/lib.rs", ""),
                ("crates/cringle-std/src/sync/mod.rs", ""),
                ("crates/cringle-std/src/fs/mod.rs", ""),
                ("crates/cringle-std/src/fiber/op.rs", uses),
            ])
        };
        assert_eq!(found("use crate::sync::Mutex;"), []);
        assert_eq!(found("use crate::{fs::File, sync};").len(), 1);
        assert_eq!(found("fn f() { super::super::fs::g(); }").len(), 1);
        assert_eq!(found("#[cfg(test)] mod tests { use crate::fs; }"), []);
        assert_eq!(found("#[cfg(all(test, unix))] mod tests { use crate::fs; }"), []);
        assert_eq!(found("#[cfg(any(test, unix))] mod model { use crate::fs; }").len(), 1);
        assert_eq!(found("use crate::run; use cringle_core::fs;"), [], "of lib.rs, and of others");
    }

    #[test]
    fn a_cycle_of_files_is_found() {
        let files = [
            ("crates/cringle-std/src/io/copy.rs", "use crate::fs::file::File;"),
            ("crates/cringle-std/src/fs/file.rs", "use crate::io::copy;"),
        ];
        assert_eq!(found(&files).len(), 1);
    }

    #[test]
    fn files_outside_of_all_rooms_are_one_room() {
        let found = |epoll: &str, dispatch: &str| {
            found(&[
                ("crates/cringle-driver/src/epoll/mod.rs", epoll),
                ("crates/cringle-driver/src/uring/mod.rs", ""),
                ("crates/cringle-driver/src/dispatch.rs", dispatch),
                ("crates/cringle-driver/src/kept.rs", ""),
            ])
        };
        assert_eq!(found("use crate::kept::Kept;", "use crate::{epoll, kept, uring};"), []);
        assert_eq!(found("use crate::uring;", "").len(), 1);
    }
}
