//! Requires an example on the public items of the libraries that std does not have, and on types.
//!
//! The items are those of the rendered documentation, which rustdoc also writes as JSON: what a
//! path from the crate's root names, also if a private module defines it, and the methods and
//! constants of its types. (rustdoc's own lint skips what only a re-export makes public.) Fields,
//! variants, associated types and constants of their own type are shown by the example of their
//! type. A function or method that has the path of one of std is used as that one, whose page has
//! an example.
//!
//! The library's facade re-exports items of the crates below it, which are read with it: what no
//! crate re-exports that programs import needs no example.

use super::Finding;
use super::sources::{documentation, root};
use super::std_paths;
use crate::Result;
use crate::crates::CRATES;
use crate::rustdoc;
use serde_json::Value;
use std::collections::HashSet;

/// Has rustdoc write its JSON, an unstable format, and looks for items without an example. cargo's
/// options are those of the landing's step `docs`, so that both use the same compiled dependencies.
pub(super) fn check(findings: &mut Vec<Finding>) -> Result<()> {
    let read = CRATES.iter().filter(|it| it.is_of_library() || it.is_imported());
    let mut command = rustdoc::command("")?;
    command.arg("--workspace").current_dir(root());
    let names = read.map(|it| it.import());
    let mut documentation = rustdoc::write_and_read(&mut command, &documentation(), names)?;
    for library in CRATES.iter().filter(|it| it.is_imported()) {
        let missing = documentation.rooted(&library.import()).and_then(missing);
        let missing = missing.ok_or("rustdoc's JSON has another form")?;
        let of_std = std_paths::existing(missing.iter().filter_map(|one| one.path.as_deref()))?;
        let is_of_std = |one: &Missing| one.path.as_ref().is_some_and(|path| of_std.contains(path));
        findings.extend(missing.into_iter().filter(|one| !is_of_std(one)).map(Missing::finding));
    }
    Ok(())
}

/// An item without an example.
#[derive(Debug, PartialEq, Eq)]
struct Missing {
    file: String,
    line: usize,
    /// The path of a function or a constant from the crate's root. `None` for other items.
    path: Option<String>,
    name: String,
    /// The crate that defines it, if that hides it from its documentation.
    hidden_in: Option<String>,
}

impl Missing {
    fn finding(self) -> Finding {
        let name = self.name;
        let text = match self.hidden_in {
            None => format!("`{name}` is public without an example; add one that runs"),
            Some(of) => format!("`{name}` is public, but {of} hides it; document it there"),
        };
        Finding { file: self.file, line: self.line, text }
    }
}

/// Returns the items without an example; `None` if this is no documentation in a known form.
fn missing(documentation: &Value) -> Option<Vec<Missing>> {
    let mut walk =
        Walk { documentation, path: Vec::new(), visited: HashSet::new(), missing: Vec::new() };
    let root = walk.item(&documentation["root"])?;
    walk.visit(root);
    (walk.visited.len() > 1).then_some(walk.missing)
}

struct Walk<'a> {
    documentation: &'a Value,
    /// The names of the modules, and the type, that are visited.
    path: Vec<String>,
    /// The addresses of the items that were visited: several paths may name an item.
    visited: HashSet<*const Value>,
    missing: Vec<Missing>,
}

impl<'a> Walk<'a> {
    /// Finds an item by its number. Those of other crates are not in the index.
    fn item(&self, id: &Value) -> Option<&'a Value> {
        self.documentation["index"].get(id.to_string())
    }

    /// Visits what an item re-exports. What std defines, or an unknown crate, has examples there.
    fn visit_use(&mut self, item: &Value, inner: &Value) {
        match self.item(&inner["id"]) {
            Some(module) if inner["is_glob"] == true => {
                self.visit_all(&module["inner"]["module"]["items"]);
            }
            Some(item) => self.visit_as(&inner["name"], item),
            None => {
                let of = &self.documentation["paths"][inner["id"].to_string()]["path"][0];
                if CRATES.iter().any(|it| it.is_of_library() && *of == it.import()) {
                    self.note(item, &inner["name"], None, Some(text(of).to_owned()));
                }
            }
        }
    }

    fn visit_all(&mut self, ids: &Value) {
        for id in ids.as_array().into_iter().flatten() {
            self.item(id).into_iter().for_each(|item| self.visit(item));
        }
    }

    fn visit(&mut self, item: &'a Value) {
        self.visit_as(&item["name"], item);
    }

    /// Visits a public item, by the name that it has here, and what belongs to it.
    fn visit_as(&mut self, name: &Value, item: &'a Value) {
        // The members of a trait have no visibility of their own.
        if !matches!(item["visibility"].as_str(), Some("public" | "default"))
            || !self.visited.insert(item)
        {
            return;
        }
        let Some((kind, inner)) = item["inner"].as_object().and_then(|map| map.iter().next())
        else {
            return;
        };
        match kind.as_str() {
            "use" => self.visit_use(item, inner),
            "assoc_type" => (),
            "function" | "constant" | "assoc_const" => {
                self.require_example(item, Some(text(name)));
            }
            "module" | "trait" | "struct" | "enum" | "union" => {
                self.require_example(item, None);
                self.path.push(text(name).into());
                self.visit_all(&inner["items"]);
                for id in inner["impls"].as_array().into_iter().flatten() {
                    self.visit_methods(item, id);
                }
                self.path.pop();
            }
            _ => self.require_example(item, None),
        }
    }

    /// Visits the items of a type's `impl` block, if it is none of a trait.
    fn visit_methods(&mut self, of: &Value, block: &Value) {
        let Some(block) = self.item(block).map(|block| &block["inner"]["impl"]) else { return };
        if !block["trait"].is_null() {
            return;
        }
        for id in block["items"].as_array().into_iter().flatten() {
            let Some(item) = self.item(id) else { continue };
            let constant = &item["inner"]["assoc_const"]["type"]["resolved_path"]["id"];
            if constant.is_null() || *constant != of["id"] {
                self.visit(item);
            }
        }
    }

    /// `name` is the last part of a path that std may have, too.
    fn require_example(&mut self, item: &Value, name: Option<&str>) {
        if has_example(text(&item["docs"])) {
            return;
        }
        // The first part is the crate.
        let modules = self.path.iter().skip(1).map(String::as_str);
        let path = name.map(|name| modules.chain([name]).collect::<Vec<_>>().join("::"));
        self.note(item, &item["name"], path, None);
    }

    fn note(&mut self, at: &Value, name: &Value, path: Option<String>, hidden_in: Option<String>) {
        let line = at["span"]["begin"][0].as_u64().and_then(|line| line.try_into().ok());
        self.missing.push(Missing {
            file: at["span"]["filename"].as_str().unwrap_or("(unknown)").into(),
            line: line.unwrap_or(1),
            path,
            name: name.as_str().unwrap_or("an item").into(),
            hidden_in,
        });
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns whether a page of documentation has a block of Rust.
fn has_example(page: &str) -> bool {
    // Every second fence begins a block.
    let fences = page.lines().filter_map(|line| line.trim_start().strip_prefix("```")).step_by(2);
    let words = |fence: &'_ str| fence.split([',', ' ']).map(str::to_owned).collect::<Vec<_>>();
    fences.map(words).any(|words| {
        words.iter().all(|word| {
            matches!(&**word, "" | "rust" | "no_run" | "should_panic")
                || word.starts_with("compile_fail")
                || word.starts_with("edition")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn item(id: u32, name: &str, docs: &str, visibility: Value, inner: Value) -> Value {
        let span = json!({ "filename": "lib.rs", "begin": [id, 1] });
        json!({
            "id": id, "name": name, "docs": docs, "visibility": visibility, "span": span,
            "inner": inner,
        })
    }

    /// A crate that reexports the type `T` of its private module: `pub use private::T`.
    fn reexporting(method_docs: &str) -> Value {
        let shown = "```\nexample();\n```";
        let public = || json!("public");
        let implementation = json!({ "impl": { "trait": null, "items": [4, 5] } });
        let constant = json!({ "assoc_const": { "type": { "resolved_path": { "id": 2 } } } });
        json!({ "root": 0, "index": {
            "0": item(0, "crate", shown, public(), json!({ "module": { "items": [1, 6] } })),
            "1": item(1, "", "", public(), json!({ "use": { "id": 2, "name": "T", "is_glob": false } })),
            "2": item(2, "T", shown, public(), json!({ "struct": { "impls": [3] } })),
            "3": item(3, "", "", json!("default"), implementation),
            "4": item(4, "method", method_docs, public(), json!({ "function": {} })),
            "5": item(5, "CONSTANT", "", public(), constant),
            "6": item(6, "private", "", json!("crate"), json!({ "module": { "items": [2] } })),
        } })
    }

    #[test]
    fn methods_of_reexported_types_need_examples() {
        let missing = missing(&reexporting("Text.\n```text\nno code\n```")).unwrap();
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(
            missing[0].line == 4 && missing[0].path.as_deref() == Some("T::method"),
            "{missing:?}"
        );
        assert_eq!(super::missing(&reexporting("```no_run\nmethod();\n```")), Some(vec![]));
    }

    #[test]
    fn reexported_items_that_a_part_of_the_library_hides_are_found() {
        let hidden_in = |of: &str| {
            let mut documentation = reexporting("```\nmethod();\n```");
            documentation["index"]["1"]["inner"]["use"]["id"] = json!(9);
            documentation["paths"] = json!({ "9": { "path": [of, "T"] } });
            let missing = missing(&documentation).unwrap();
            missing.into_iter().map(|one| one.hidden_in).collect::<Vec<_>>()
        };
        assert_eq!(hidden_in("cringle_std"), [Some("cringle_std".to_owned())]);
        assert_eq!(hidden_in("std"), []);
    }

    #[test]
    fn unknown_forms_of_documentation_are_reported() {
        assert_eq!(missing(&json!({ "root": 0, "index": {} })), None);
        assert_eq!(missing(&json!({ "index": { "0": {} } })), None);
    }
}
