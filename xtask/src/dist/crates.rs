//! The crates for crates.io, and the order in which they are published.

use super::build::Build;
use crate::Result;
use crate::commands::{cargo, output};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Packages that are not published.
const NOT_PUBLISHED: [&str; 3] = ["xtask", "cringle-testing", "cringle-preload"];

/// Packages each, and writes their file names into `ORDER`.
pub(super) fn package(build: &Build, folder: &Path) -> Result<()> {
    let mut package = build.cargo();
    package.args(["package", "--workspace", "--no-verify", "--quiet", "--locked"]);
    package.args(NOT_PUBLISHED.iter().flat_map(|name| ["--exclude", name]));
    build.run(&mut package)?;
    fs::create_dir_all(folder)?;
    let order = order(&metadata(&build.sources)?)?;
    let packaged = build.sources.join("target/dist/cargo/package");
    for file in &order {
        fs::copy(packaged.join(file), folder.join(file)).map_err(|e| format!("{file}: {e}"))?;
        let files = output(Command::new("tar").arg("-tzf").arg(folder.join(file)))?;
        if files.lines().filter(|path| path.contains("/LICENSE-")).count() != 2 {
            return Err(format!("{file} does not have both licences").into());
        }
    }
    Ok(fs::write(folder.join("ORDER"), order.join("\n") + "\n")?)
}

/// The version of all packages.
pub(super) fn version(sources: &Path) -> Result<String> {
    let metadata = metadata(sources)?;
    let packages = metadata["packages"].as_array().ok_or("cargo names no packages")?;
    let facade = packages.iter().find(|it| it["name"] == crate::crates::FACADE);
    let version = facade.and_then(|it| it["version"].as_str());
    Ok(version.ok_or("cargo does not name the version")?.to_owned())
}

fn metadata(sources: &Path) -> Result<Value> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--no-deps", "--format-version=1"]).current_dir(sources);
    Ok(serde_json::from_str(&output(&mut metadata)?)?)
}

/// The file names of the packages, each after those that it depends on.
fn order(metadata: &Value) -> Result<Vec<String>> {
    let all = metadata["packages"].as_array().ok_or("cargo names no packages")?;
    let name = |it: &Value| it["name"].as_str().unwrap_or_default().to_owned();
    let mut left: Vec<&Value> =
        all.iter().filter(|it| !NOT_PUBLISHED.contains(&name(it).as_str())).collect();
    left.sort_by_key(|it| name(it));
    let mut order = Vec::new();
    while !left.is_empty() {
        let waits = |it: &Value| {
            let needed = it["dependencies"].as_array().into_iter().flatten();
            needed
                .filter(|needed| needed["kind"] != "dev")
                .any(|needed| left.iter().any(|other| other["name"] == needed["name"]))
        };
        let (later, next): (Vec<_>, Vec<_>) = left.iter().copied().partition(|it| waits(it));
        if next.is_empty() {
            let names: Vec<_> = later.iter().map(|it| name(it)).collect();
            return Err(format!("these depend on each other: {}", names.join(", ")).into());
        }
        order.extend(next.iter().map(|it| {
            format!("{}-{}.crate", name(it), it["version"].as_str().unwrap_or_default())
        }));
        left = later;
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, needs: &[(&str, Option<&str>)]) -> Value {
        let needs: Vec<_> =
            needs.iter().map(|(name, kind)| json!({ "name": name, "kind": kind })).collect();
        json!({ "name": name, "version": "0.1.0", "dependencies": needs })
    }

    #[test]
    fn a_crate_comes_after_those_that_it_depends_on() {
        let packages = [
            package("a", &[("c", None), ("serde", None)]),
            package("b", &[("a", Some("dev"))]),
            package("c", &[("b", None)]),
            package("xtask", &[]),
        ];
        let order = order(&json!({ "packages": packages })).unwrap();
        assert_eq!(order, ["b-0.1.0.crate", "c-0.1.0.crate", "a-0.1.0.crate"]);
    }

    #[test]
    fn a_cycle_is_an_error() {
        let packages = [package("a", &[("b", None)]), package("b", &[("a", None)])];
        let error = order(&json!({ "packages": packages })).unwrap_err();
        assert_eq!(error.to_string(), "these depend on each other: a, b");
    }
}
