//! Compares the packages of the workspace with the table in `xtask/src/crates.rs`: each has a row,
//! has no more code than its budget, and names the parts of the library by their exact versions.

use super::Finding;
use super::ledger;
use super::sources::{Source, root};
use crate::crates::{self, CRATES, Crate, Kind};
use crate::{Result, commands};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const TABLE: &str = "CRATES (xtask/src/crates.rs)";

pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) -> Result<()> {
    let mut cargo = commands::cargo();
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version=1"]).current_dir(root());
    let metadata: Value = serde_json::from_str(&commands::output(&mut cargo)?)?;
    let packages = packages(&metadata).ok_or("cargo metadata has another form")?;
    findings.extend(different_rows(CRATES, &packages));
    findings.extend(inexact_versions(CRATES, &packages));
    findings.extend(excess(CRATES, &lines(sources)?));
    Ok(())
}

/// Returns the lines of code below the `src` of each crate, by its folder.
pub(super) fn lines(sources: &[Source]) -> Result<BTreeMap<&'static str, usize>> {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources {
        if let Some(Crate { folder, .. }) = crates::of(&source.path) {
            *lines.entry(folder).or_default() += ledger::code_of(source)?;
        }
    }
    Ok(lines)
}

/// What `cargo metadata` says of a package.
struct Package {
    /// From the root of the repository.
    folder: String,
    dependencies: Vec<Dependency>,
}

struct Dependency {
    name: String,
    version: String,
    is_for_tests: bool,
}

fn packages(metadata: &Value) -> Option<Vec<Package>> {
    let root = Path::new(metadata["workspace_root"].as_str()?);
    let package = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        let dependency = |dependency: &Value| {
            Some(Dependency {
                name: dependency["name"].as_str()?.to_owned(),
                version: dependency["req"].as_str()?.to_owned(),
                is_for_tests: dependency["kind"] == "dev",
            })
        };
        Some(Package {
            folder: manifest.parent()?.strip_prefix(root).ok()?.to_str()?.to_owned(),
            dependencies: package["dependencies"]
                .as_array()?
                .iter()
                .map(dependency)
                .collect::<Option<_>>()?,
        })
    };
    metadata["packages"].as_array()?.iter().map(package).collect()
}

fn in_manifest(folder: &str, text: String) -> Finding {
    Finding { file: format!("{folder}/Cargo.toml"), line: 1, text }
}

/// Finds packages without a row, and rows without a package.
fn different_rows(rows: &[Crate], packages: &[Package]) -> Vec<Finding> {
    let has_row = |it: &&Package| rows.iter().any(|row| row.folder == it.folder);
    let without = packages.iter().filter(|it| !has_row(it)).map(|it| {
        in_manifest(&it.folder, format!("this crate has no budget; add a row to {TABLE}"))
    });
    let exists = |row: &&Crate| packages.iter().any(|it| it.folder == row.folder);
    let unused = rows.iter().filter(|row| !exists(row)).map(|row| {
        in_manifest(row.folder, format!("no such package; remove its row from {TABLE}"))
    });
    without.chain(unused).collect()
}

/// Finds packages that name a part of the library by another version than exactly its own: the
/// parts promise no stability. (A dependency of tests may be a path alone, which cargo leaves out
/// of what it publishes.)
fn inexact_versions(rows: &[Crate], packages: &[Package]) -> Vec<Finding> {
    let is_part = |name: &str| rows.iter().any(|it| it.kind == Kind::Part && it.name() == name);
    let mut found = Vec::new();
    for Package { folder, dependencies } in packages {
        for Dependency { name, version, is_for_tests } in dependencies {
            let is_exact = version.starts_with('=') || *is_for_tests && version == "*";
            if is_part(name) && !is_exact {
                let text = format!("needs {name} {version}; name its exact version, as `=1.2.3`");
                found.push(in_manifest(folder, text));
            }
        }
    }
    found
}

fn excess(rows: &[Crate], lines: &BTreeMap<&str, usize>) -> Vec<Finding> {
    let mut found = Vec::new();
    for Crate { folder, budget, .. } in rows {
        let lines = lines.get(folder).copied().unwrap_or_default();
        if lines > *budget {
            let text = format!(
                "{lines} lines of code, the budget is {budget}; remove some, or raise it with a \
                 reason in {TABLE}"
            );
            found.push(in_manifest(folder, text));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ROW: Crate = Crate {
        folder: "crates/cringle-a",
        kind: Kind::Part,
        budget: 2,
        reason: "It is small.",
        rooms: &[],
    };

    fn package(folder: &str, dependency: Value) -> Value {
        json!({ "manifest_path": format!("/r/{folder}/Cargo.toml"), "dependencies": [dependency] })
    }

    #[test]
    fn packages_and_rows_without_the_other_are_found() {
        let other = json!({ "name": "b", "req": "^1", "kind": null });
        let of = |folder| {
            let packages_of =
                json!({ "workspace_root": "/r", "packages": [package(folder, other.clone())] });
            different_rows(&[ROW], &packages(&packages_of).unwrap())
        };
        assert_eq!(of("crates/cringle-a"), []);
        let found = of("crates/cringle-b");
        let files: Vec<&str> = found.iter().map(|it| it.file.as_str()).collect();
        assert_eq!(files, ["crates/cringle-b/Cargo.toml", "crates/cringle-a/Cargo.toml"]);
    }

    #[test]
    fn parts_are_named_by_exact_versions() {
        let found = |name: &str, version: &str, kind: Value| {
            let dependency = json!({ "name": name, "req": version, "kind": kind });
            let metadata =
                json!({ "workspace_root": "/r", "packages": [package("b", dependency)] });
            inexact_versions(&[ROW], &packages(&metadata).unwrap()).len()
        };
        assert_eq!(found("cringle-a", "=0.1.0", Value::Null), 0);
        assert_eq!(found("cringle-a", "^0.1.0", Value::Null), 1);
        assert_eq!(found("cringle-a", "*", Value::Null), 1);
        assert_eq!(found("cringle-a", "*", json!("dev")), 0);
        assert_eq!(found("slab", "^0.4", Value::Null), 0);
    }

    #[test]
    fn crate_that_exceeds_its_budget_is_found() {
        let found = |lines| excess(&[ROW], &BTreeMap::from([(ROW.folder, lines)]));
        assert_eq!(found(2), []);
        let text = &found(3)[0].text;
        assert!(
            text.contains("3 lines") && text.contains("is 2") && text.contains(TABLE),
            "{text}"
        );
    }
}
