//! Requires an example on every public item of the libraries.
//!
//! The items are those of the rendered documentation, which rustdoc also writes as JSON: what a
//! path from the crate's root names, also if a private module defines it, and the methods and
//! constants of its types. (rustdoc's own lint skips what only a re-export makes public.) Fields,
//! variants, associated types and constants of their own type are shown by the example of their
//! type.

use super::Finding;
use super::sources::{documentation, root};
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
        findings.extend(missing);
    }
    Ok(())
}

/// Returns the items without an example; `None` if this is no documentation in a known form.
fn missing(documentation: &Value) -> Option<Vec<Finding>> {
    let mut walk =
        Walk { index: &documentation["index"], visited: HashSet::new(), missing: Vec::new() };
    let root = walk.item(&documentation["root"])?;
    walk.visit(root);
    (walk.visited.len() > 1).then_some(walk.missing)
}

struct Walk<'a> {
    index: &'a Value,
    /// The addresses of the items that were visited: several paths may name an item.
    visited: HashSet<*const Value>,
    missing: Vec<Finding>,
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

    /// Visits a public item and what belongs to it.
    fn visit(&mut self, item: &'a Value) {
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
                Some(item) => self.visit(item),
                None => (),
            },
            "assoc_type" => (),
            "module" | "trait" => {
                self.require_example(item);
                self.visit_all(&inner["items"]);
            }
            "struct" | "enum" | "union" => {
                self.require_example(item);
                for id in inner["impls"].as_array().into_iter().flatten() {
                    self.visit_methods(item, id);
                }
            }
            _ => self.require_example(item),
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

    fn require_example(&mut self, item: &Value) {
        if has_example(item["docs"].as_str().unwrap_or_default()) {
            return;
        }
        let line = item["span"]["begin"][0].as_u64().unwrap_or(1);
        let name = item["name"].as_str().unwrap_or("an item");
        self.missing.push(Finding {
            file: item["span"]["filename"].as_str().unwrap_or("(unknown)").into(),
            line: usize::try_from(line).unwrap_or(1),
            text: format!("`{name}` is public without an example; add one that runs"),
        });
    }
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
            "1": item(1, "", "", public(), json!({ "use": { "id": 2, "is_glob": false } })),
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
        assert!(missing[0].line == 4 && missing[0].text.contains("`method`"), "{missing:?}");
        assert_eq!(super::missing(&reexporting("```no_run\nmethod();\n```")), Some(vec![]));
    }

    #[test]
    fn unknown_forms_of_documentation_are_reported() {
        assert_eq!(missing(&json!({ "root": 0, "index": {} })), None);
        assert_eq!(missing(&json!({ "index": { "0": {} } })), None);
    }
}
