//! The licences of all crates that are in the programs, with their texts.

use super::build::Build;
use crate::Result;
use crate::commands::output;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The name begins so that the wheels' licence files include it.
const FILE: &str = "LICENSES-OF-DEPENDENCIES.txt";

/// Those of the standard library, as Rust distributes them.
const OF_RUST: &str = "LICENSES-OF-RUST.html";
pub(super) const FILES: [&str; 2] = [FILE, OF_RUST];

/// Writes the file of the command, which has all dependencies of the libraries, and that of the
/// wheels.
pub(super) fn write(build: &Build, dist: &Path) -> Result<()> {
    generate(build, "crates/cringle-cli/Cargo.toml", &dist.join(FILE))?;
    let python = build.sources.join("bindings/python");
    generate(build, "bindings/python/Cargo.toml", &python.join(FILE))?;
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let of_rust = Path::new(sysroot.trim()).join("share/doc/rust/COPYRIGHT-library.html");
    for folder in [dist, &python] {
        let copied = fs::copy(&of_rust, folder.join(OF_RUST));
        copied.map_err(|error| format!("{}: {error}", of_rust.display()))?;
    }
    Ok(())
}

fn generate(build: &Build, manifest: &str, file: &Path) -> Result<()> {
    let templates = build.sources.join("xtask/src/dist");
    // It reads the crates of all systems, and has to be offline, or it asks a service for licences.
    let mut fetch = build.cargo();
    build.run(fetch.args(["fetch", "--quiet", "--locked", "--manifest-path", manifest]))?;
    let mut about = build.cargo();
    about.args(["about", "generate", "--locked", "--offline", "--fail"]);
    about.args(["--manifest-path", manifest]);
    about.arg("--config").arg(templates.join("about.toml"));
    about.arg("--output-file").arg(file).arg(templates.join("about.hbs"));
    build.run(&mut about)?;
    if fs::metadata(file)?.len() == 0 {
        return Err(format!("{} is empty", file.display()).into());
    }
    Ok(())
}
