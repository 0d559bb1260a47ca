//! `cargo xtask semver`: the public API against that of the commit in `.ci/api-baseline`.
//!
//! `cargo semver-checks` reads the documentation of one crate, and would find that the facade has
//! lost all that it re-exports. So it gets the documentation of the facade with its parts, now and
//! then.

use crate::commands::{cargo, output};
use crate::crates::{self, Crate, FACADE};
use crate::{Result, root, rustdoc};
use std::path::{Path, PathBuf};
use std::process::Command;

/// With what cargo-semver-checks has rustdoc write: it decides itself what is public.
const OPTIONS: &str = "--document-private-items --document-hidden-items --cap-lints allow";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What the next release may change: major, minor or patch
    #[arg(long, value_name = "TYPE", default_value = "minor")]
    release_type: String,
}

/// Returns whether nothing public has changed that such a release may not change.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let root = root().canonicalize()?;
    let folder = root.join(crate::target_directory()).join("semver");
    std::fs::create_dir_all(&folder)?;
    let baseline = std::fs::read_to_string(root.join(".ci/api-baseline"))?;
    let sources = unpack(&root, baseline.trim(), &folder)?;
    let before = documentation(&sources, &folder, "before")?;
    let now = documentation(&root, &folder, "now")?;
    let mut checks = cargo();
    checks.args(["semver-checks", "--release-type", &args.release_type]);
    checks.arg("--baseline-rustdoc").arg(before);
    Ok(checks.arg("--current-rustdoc").arg(now).status()?.success())
}

/// Unpacks the sources of a commit, and returns where they are.
fn unpack(root: &Path, commit: &str, folder: &Path) -> Result<PathBuf> {
    let (archive, sources) = (folder.join("sources.tar"), folder.join("sources"));
    let mut git = Command::new("git");
    git.args(["archive", "--output"]).arg(&archive).arg(commit).current_dir(root);
    output(&mut git)?;
    if sources.exists() {
        std::fs::remove_dir_all(&sources)?;
    }
    std::fs::create_dir(&sources)?;
    output(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&sources))?;
    Ok(sources)
}

/// Writes the documentation of the facade with those of its parts that these sources have.
fn documentation(sources: &Path, folder: &Path, name: &str) -> Result<PathBuf> {
    let target = folder.join("target");
    let mut command = rustdoc::command(OPTIONS)?;
    command.arg("--target-dir").arg(&target).current_dir(sources);
    let parts: Vec<&Crate> =
        crates::library().filter(|it| sources.join(it.folder).exists()).collect();
    command.args(parts.iter().flat_map(|part| ["--package", part.name()]));
    let names = parts.iter().map(|part| part.import());
    let mut both = rustdoc::write_and_read(&mut command, &target.join("doc"), names)?;
    let both = both.rooted(FACADE).ok_or("rustdoc wrote nothing of the facade")?;
    let file = folder.join(name).with_extension("json");
    std::fs::write(&file, both.to_string())?;
    Ok(file)
}
