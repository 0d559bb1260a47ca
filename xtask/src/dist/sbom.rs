//! Lists of the crates in each program and library, in the format of CycloneDX.

use super::arch::Arch;
use super::build::{Build, write};
use crate::Result;
use crate::commands::output;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

pub(super) fn build(build: &Build, arch: Arch, dist: &Path) -> Result<()> {
    let (musl, gnu) = (arch.musl(), arch.gnu());
    for (package, target) in
        [("cringle-cli", &musl), ("cringle-preload", &gnu), ("cringle-c", &gnu)]
    {
        let folder = build.sources.join("crates").join(package);
        let mut cyclonedx = build.cargo();
        cyclonedx.args(["cyclonedx", "--quiet", "--format", "json", "--spec-version", "1.5"]);
        cyclonedx.args(["--no-build-deps", "--target", target, "--manifest-path"]);
        build.run(cyclonedx.arg(folder.join("Cargo.toml")))?;
        let text = fs::read_to_string(folder.join(format!("{package}.cdx.json")))?;
        let text = text.replace(&build.sources.display().to_string(), "/cringle");
        let mut list = serde_json::from_str(&text)?;
        keep(&mut list, compiled(build, package, target)?)?;
        let file = dist.join(format!("sbom/{package}-{target}.cdx.json"));
        write(&file, &serde_json::to_string_pretty(&list)?)?;
        // It writes a list beside each manifest.
        for it in crate::crates::CRATES {
            let written = format!("{}/{}.cdx.json", it.folder, it.name());
            let _ = fs::remove_file(build.sources.join(written));
        }
    }
    Ok(())
}

/// Removes what is only listed because of the features that tests and other packages of the
/// workspace need.
///
/// # Errors
///
/// The list lacks a crate.
fn keep(list: &mut Value, mut compiled: BTreeSet<String>) -> Result<()> {
    compiled.remove(&name(&list["metadata"]["component"]));
    let mut others = BTreeSet::new();
    retain(&mut list["components"], |it| {
        compiled.remove(&name(it)) || !others.insert(it["bom-ref"].to_string())
    });
    retain(&mut list["dependencies"], |it| {
        retain(&mut it["dependsOn"], |it| !others.contains(&it.to_string()));
        !others.contains(&it["ref"].to_string())
    });
    if compiled.is_empty() { Ok(()) } else { Err(format!("the list lacks {compiled:?}").into()) }
}

fn retain(list: &mut Value, keep: impl FnMut(&mut Value) -> bool) {
    if let Some(list) = list.as_array_mut() {
        list.retain_mut(keep);
    }
}

/// The name and the version, as cargo prints them.
fn name(component: &Value) -> String {
    let text = |key: &str| component[key].as_str().unwrap_or_default();
    format!("{} v{}", text("name"), text("version"))
}

/// What cargo compiles for the package, and for that alone.
fn compiled(build: &Build, package: &str, target: &str) -> Result<BTreeSet<String>> {
    let mut tree = build.cargo();
    tree.args(["tree", "--locked", "--edges=normal", "--prefix=none", "--format={p}"]);
    let printed = output(tree.args(["--package", package, "--target", target]))?;
    Ok(printed.lines().map(|line| line.split(" (").next().unwrap_or(line).to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_have_what_is_compiled_and_nothing_else() {
        let component = |name| json!({ "bom-ref": name, "name": name, "version": "1.0.0" });
        let mut list = json!({
            "metadata": { "component": component("program") },
            "components": [component("used"), component("only-in-tests")],
            "dependencies": [
                { "ref": "program", "dependsOn": ["only-in-tests", "used"] },
                { "ref": "only-in-tests", "dependsOn": ["used"] },
            ],
        });
        let compiled = |names: &[&str]| names.iter().map(|it| format!("{it} v1.0.0")).collect();
        keep(&mut list, compiled(&["program", "used"])).unwrap();
        assert_eq!(list["components"], json!([component("used")]));
        assert_eq!(list["dependencies"], json!([{ "ref": "program", "dependsOn": ["used"] }]));
        assert!(keep(&mut list, compiled(&["program", "used", "missing"])).is_err());
    }
}
