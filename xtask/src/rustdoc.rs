//! What rustdoc writes of crates as JSON, an unstable format.
//!
//! The documentation of a crate has no items of other crates, and says only where those are
//! defined. The library's facade re-exports what the crates below it define, so their documentation
//! is read together: each item has one number, by which every crate names it.

use crate::commands::{cargo, output};
use crate::{Result, root};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

/// What a crate adds to the numbers of its items: more than it has.
const STRIDE: u64 = 1 << 26;
/// The keys of lists of numbers.
const LISTS: [&str; 6] = ["fields", "implementations", "impls", "items", "tuple", "variants"];

/// A call of `cargo doc` that writes JSON, with these options of rustdoc.
pub(crate) fn command(options: &str) -> Result<Command> {
    let mut cargo = cargo();
    cargo.args(["doc", "--no-deps", "--all-features"]);
    cargo.env("RUSTDOC", root().join(".ci/rustdoc").canonicalize()?);
    cargo.env("RUSTDOCFLAGS", format!("-Zunstable-options --output-format json {options}"));
    Ok(cargo)
}

/// Has rustdoc write the documentation, and reads that of some crates from a folder.
pub(crate) fn write_and_read(
    command: &mut Command,
    folder: &Path,
    crates: impl Iterator<Item = String>,
) -> Result<Documentation> {
    output(command)?;
    let mut values = Vec::new();
    for name in crates {
        let path = folder.join(&name).with_extension("json");
        let text = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        values.push((name, serde_json::from_slice(&text)?));
    }
    Ok(Documentation::of(values).ok_or("rustdoc's JSON has another form")?)
}

/// The documentation of several crates, in the form of that of one.
pub(crate) struct Documentation {
    value: Value,
    /// The numbers of the roots, by the names of the crates.
    roots: BTreeMap<String, Value>,
}

impl Documentation {
    pub(crate) fn of(crates: Vec<(String, Value)>) -> Option<Documentation> {
        let names: Vec<String> = crates.iter().map(|(name, _)| name.clone()).collect();
        let own: Option<Vec<_>> = crates.iter().map(|(_, value)| own(value)).collect();
        let own = own?;
        let (mut index, mut paths, mut roots) = (Map::new(), Map::new(), BTreeMap::new());
        let mut others = Map::new();
        let mut first = None;
        for (place, (name, mut value)) in crates.into_iter().enumerate() {
            let numbers = Numbers::of(place, &value, &names, &own, &mut others)?;
            roots.insert(name, numbers.item(value["root"].as_u64()?).into());
            for (part, whole) in [("index", &mut index), ("paths", &mut paths)] {
                let items = std::mem::take(value[part].as_object_mut()?);
                for (id, mut item) in items {
                    let id = numbers.item(id.parse().ok()?);
                    numbers.replace(&mut item);
                    // A crate knows its own items best.
                    if id / STRIDE == place as u64 {
                        whole.insert(id.to_string(), item);
                    }
                }
            }
            first.get_or_insert(value);
        }
        add_implementations(&mut index);
        let mut value = first?;
        value["index"] = Value::Object(index);
        value["paths"] = Value::Object(paths);
        value["external_crates"] = Value::Object(others);
        Some(Documentation { value, roots })
    }

    /// The documentation with this crate's root.
    pub(crate) fn rooted(&mut self, name: &str) -> Option<&Value> {
        self.value["root"] = self.roots.get(name)?.clone();
        Some(&self.value)
    }
}

/// Where an item is defined, and what it is: several items of one path are of different kinds.
type Definition = (String, String);

/// Reads an entry of `paths`.
fn definition(entry: &Value) -> Option<Definition> {
    let path: Option<Vec<&str>> = entry["path"].as_array()?.iter().map(Value::as_str).collect();
    Some((path?.join("::"), entry["kind"].as_str()?.to_owned()))
}

/// The numbers of the items that a crate defines and shows.
fn own(value: &Value) -> Option<HashMap<Definition, u64>> {
    let mut own = HashMap::new();
    for (id, entry) in value["paths"].as_object()? {
        if entry["crate_id"] == 0 && value["index"].get(id).is_some() {
            own.insert(definition(entry)?, id.parse().ok()?);
        }
    }
    Some(own)
}

/// What becomes of a crate's numbers.
struct Numbers {
    place: usize,
    /// Items that another of the crates defines.
    foreign: HashMap<u64, u64>,
    /// The numbers of crates. 0 is each that is read.
    crates: HashMap<u64, usize>,
}

impl Numbers {
    fn of(
        place: usize,
        value: &Value,
        names: &[String],
        own: &[HashMap<Definition, u64>],
        others: &mut Map<String, Value>,
    ) -> Option<Numbers> {
        let mut crates = HashMap::from([(0, 0)]);
        for (id, other) in value["external_crates"].as_object()? {
            let name = other["name"].as_str()?;
            let is_read = names.iter().any(|it| it == name);
            let known = others.iter().find(|(_, known)| known["name"] == other["name"]);
            let number = match known {
                _ if is_read => 0,
                Some((number, _)) => number.parse().ok()?,
                None => others.len() + 1,
            };
            if number > others.len() {
                others.insert(number.to_string(), other.clone());
            }
            crates.insert(id.parse().ok()?, number);
        }
        let mut foreign = HashMap::new();
        for (id, entry) in value["paths"].as_object()? {
            let definition = definition(entry)?;
            let name = definition.0.split("::").next().unwrap_or_default();
            let of = names.iter().position(|it| it == name).filter(|of| *of != place);
            if let Some((of, own)) = of.and_then(|of| Some((of, own[of].get(&definition)?))) {
                foreign.insert(id.parse().ok()?, of as u64 * STRIDE + own);
            }
        }
        Some(Numbers { place, foreign, crates })
    }

    fn item(&self, id: u64) -> u64 {
        self.foreign.get(&id).copied().unwrap_or(self.place as u64 * STRIDE + id)
    }

    fn replace_item(&self, id: &mut Value) {
        if let Some(number) = id.as_u64() {
            *id = self.item(number).into();
        }
    }

    /// Replaces the numbers in an item.
    fn replace(&self, value: &mut Value) {
        match value {
            Value::Array(list) => list.iter_mut().for_each(|it| self.replace(it)),
            Value::Object(object) => {
                for (key, inner) in object {
                    match (key.as_str(), &mut *inner) {
                        ("id", id) => self.replace_item(id),
                        ("crate_id", id) => {
                            let number = id.as_u64().and_then(|id| self.crates.get(&id));
                            *id = json!(number);
                        }
                        ("links", Value::Object(links)) => {
                            links.values_mut().for_each(|id| self.replace_item(id));
                        }
                        (key, Value::Array(list)) if LISTS.contains(&key) => {
                            list.iter_mut().for_each(|id| self.replace_item(id));
                        }
                        _ => (),
                    }
                    self.replace(inner);
                }
            }
            _ => (),
        }
    }
}

/// Adds to each type the implementations of it that other crates have, for traits of their own.
fn add_implementations(index: &mut Map<String, Value>) {
    let implementation = |item: &Value| {
        let of = item["inner"]["impl"]["for"]["resolved_path"]["id"].as_u64()?;
        Some((of, item["id"].clone()))
    };
    let all: Vec<(u64, Value)> = index.values().filter_map(implementation).collect();
    for (of, id) in all {
        let Some(item) = index.get_mut(&of.to_string()) else { continue };
        let kinds = ["struct", "enum", "union"];
        let Some(kind) = kinds.into_iter().find(|kind| !item["inner"][kind].is_null()) else {
            continue;
        };
        if let Some(impls) = item["inner"][kind]["impls"].as_array_mut()
            && !impls.contains(&id)
        {
            impls.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate with a type of a private module, and its method.
    fn low() -> Value {
        json!({
            "root": 0,
            "external_crates": { "4": { "name": "std" } },
            "paths": {
                "0": { "crate_id": 0, "path": ["low"], "kind": "module" },
                "2": { "crate_id": 0, "path": ["low", "private", "T"], "kind": "struct" },
                "9": { "crate_id": 4, "path": ["std", "io", "Error"], "kind": "struct" },
            },
            "index": {
                "0": { "id": 0, "crate_id": 0, "inner": { "module": { "items": [2] } } },
                "2": { "id": 2, "crate_id": 0, "inner": { "struct": { "impls": [3] } } },
                "3": { "id": 3, "crate_id": 0, "links": { "T": 2 }, "inner": { "impl": {
                    "items": [], "trait": null, "for": { "resolved_path": { "id": 2 } },
                } } },
            },
        })
    }

    /// A crate that re-exports this type, and implements a trait for it.
    fn high() -> Value {
        json!({
            "root": 7,
            "external_crates": { "1": { "name": "low" }, "2": { "name": "std" } },
            "paths": {
                "7": { "crate_id": 0, "path": ["high"], "kind": "module" },
                "5": { "crate_id": 1, "path": ["low", "private", "T"], "kind": "struct" },
                "6": { "crate_id": 2, "path": ["std", "io", "Error"], "kind": "struct" },
            },
            "index": {
                "7": { "id": 7, "crate_id": 0, "inner": { "module": { "items": [8, 2] } } },
                "8": { "id": 8, "crate_id": 0, "inner": { "use": { "id": 5, "name": "T" } } },
                "2": { "id": 2, "crate_id": 2, "inner": { "impl": {
                    "items": [], "trait": { "id": 6 }, "for": { "resolved_path": { "id": 5 } },
                } } },
            },
        })
    }

    #[test]
    fn items_of_several_crates_have_one_number_each() {
        let crates = vec![("high".to_owned(), high()), ("low".to_owned(), low())];
        let mut both = Documentation::of(crates).unwrap();
        let low = both.rooted("low").unwrap()["root"].as_u64().unwrap();
        assert_eq!(low, STRIDE);
        let value = both.rooted("high").unwrap();
        assert_eq!(
            (value["root"].as_u64(), value["index"].as_object().unwrap().len()),
            (Some(7), 6)
        );
        let named = &value["index"]["8"]["inner"]["use"]["id"];
        assert_eq!(named.as_u64(), Some(STRIDE + 2), "the number that its crate has for it");
        let of_type = &value["index"][named.to_string()];
        assert_eq!(of_type["inner"]["struct"]["impls"], json!([STRIDE + 3, 2]), "both crates' own");
        let own = &value["index"][(STRIDE + 3).to_string()];
        assert_eq!(own["links"]["T"], *named);
        assert_eq!(
            value["paths"]["6"]["crate_id"],
            value["paths"][(STRIDE + 9).to_string()]["crate_id"]
        );
        assert_eq!(value["external_crates"].as_object().unwrap().len(), 1, "std");
    }

    #[test]
    fn unknown_forms_are_refused() {
        for part in ["root", "paths", "index", "external_crates"] {
            let mut value = low();
            value[part] = Value::Null;
            assert!(Documentation::of(vec![("low".to_owned(), value)]).is_none(), "{part}");
        }
        let mut known = Documentation::of(vec![("low".to_owned(), low())]).unwrap();
        assert!(known.rooted("low").is_some() && known.rooted("other").is_none());
    }
}
