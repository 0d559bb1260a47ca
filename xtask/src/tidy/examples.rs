//! Requires an example on the public items of the libraries that std does not have, and on types.
//!
//! The items are those of the rendered documentation, which rustdoc also writes as JSON: what a
//! path from the crate's root names, also if a private module defines it, and the methods and
//! constants of its types. (rustdoc's own lint skips what only a re-export makes public.) Fields,
//! variants, associated types and constants of their own type are shown by the example of their
//! type. A function or method that has the path of one of std is used as that one, whose page has
//! an example.

use super::Finding;
use super::sources::{documentation, root};
use super::std_paths;
use crate::Result;
use serde_json::Value;
use std::collections::HashSet;
use std::process::Command;

/// The libraries that Rust programs import. (`cringle-c` is one for C: its examples are programs in
/// C. The other published crates are parts of the command.)
const LIBRARIES: [&str; 4] = ["cringle", "cringle-cp", "cringle-interpose", "cringle-object-store"];

/// Has rustdoc write its JSON, an unstable format, and looks for items without an example. cargo's
/// options are those of the landing's step `docs`, so that both use the same compiled dependencies.
pub(super) fn check(findings: &mut Vec<Finding>) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["doc", "--workspace", "--no-deps", "--all-features"]).current_dir(root());
    cargo
        .env("RUSTDOC", root().join(".ci/rustdoc").canonicalize()?)
        .env("RUSTDOCFLAGS", "-Zunstable-options --output-format json");
    let output = cargo.output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo doc failed:\n{text}").into());
    }
    for library in LIBRARIES {
        let path = documentation().join(format!("{}.json", library.replace('-', "_")));
        let text = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let missing = missing(&serde_json::from_slice(&text)?)
            .ok_or_else(|| format!("{}: rustdoc's JSON has another form", path.display()))?;
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
}

impl Missing {
    fn finding(self) -> Finding {
        let text = format!("`{}` is public without an example; add one that runs", self.name);
        Finding { file: self.file, line: self.line, text }
    }
}

/// Returns the items without an example; `None` if this is no documentation in a known form.
fn missing(documentation: &Value) -> Option<Vec<Missing>> {
    let mut walk = Walk {
        index: &documentation["index"],
        path: Vec::new(),
        visited: HashSet::new(),
        missing: Vec::new(),
    };
    let root = walk.item(&documentation["root"])?;
    walk.visit(root);
    (walk.visited.len() > 1).then_some(walk.missing)
}

struct Walk<'a> {
    index: &'a Value,
    /// The names of the modules, and the type, that are visited.
    path: Vec<String>,
    /// The addresses of the items that were visited: several paths may name an item.
    visited: HashSet<*const Value>,
    missing: Vec<Missing>,
}

impl<'a> Walk<'a> {
    /// Finds an item by its number. Those of other crates are not in the index.
    fn item(&self, id: &Value) -> Option<&'a Value> {
        self.index.get(id.as_str().map_or_else(|| id.to_string(), str::to_owned))
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
            "use" => match self.item(&inner["id"]) {
                Some(module) if inner["is_glob"] == true => {
                    self.visit_all(&module["inner"]["module"]["items"]);
                }
                Some(item) => self.visit_as(&inner["name"], item),
                None => (),
            },
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
        self.missing.push(Missing {
            file: item["span"]["filename"].as_str().unwrap_or("(unknown)").into(),
            line: item["span"]["begin"][0]
                .as_u64()
                .and_then(|line| line.try_into().ok())
                .unwrap_or(1),
            path: name.map(|name| modules.chain([name]).collect::<Vec<_>>().join("::")),
            name: item["name"].as_str().unwrap_or("an item").into(),
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
    fn unknown_forms_of_documentation_are_reported() {
        assert_eq!(missing(&json!({ "root": 0, "index": {} })), None);
        assert_eq!(missing(&json!({ "index": { "0": {} } })), None);
    }
}
