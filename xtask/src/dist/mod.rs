//! `cargo xtask dist`: all that users install, in `dist/`. Each of it is installed and run where it
//! will be used. The same commit gives the same bytes.

mod arch;
mod build;
mod check;
mod crates;
mod licences;
mod root;
mod sbom;
mod sums;
mod tools;
mod wheels;

use crate::commands::output;
use crate::{Result, root as repository};
use arch::Arch;
use build::Build;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tools::Tools;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask dist               build everything into dist/, then install and run each artefact
  cargo xtask dist --twice       build also from a second clone, and compare the bytes
  cargo xtask dist --check       install and run what is in dist/

It builds HEAD, for x86-64 and aarch64, on a Debian machine with rustup, Python and git; it installs
its other tools from crates.io and PyPI below target/dist. The artefacts are installed in Debian 12
and 13, which debootstrap unpacks: that takes root. What this machine lacks is skipped by name; then
the last lines say what was not built and not run. docs/releasing.md has the list of artefacts.")]
pub(crate) struct Args {
    /// Build a second time, from a clone in another directory, and compare
    #[arg(long, conflicts_with = "check")]
    twice: bool,

    /// Build nothing: install and run what is in dist/
    #[arg(long)]
    check: bool,
}

/// Returns whether all that was checked works, and a second build gave the same bytes.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let sources = repository().canonicalize()?;
    let (work, dist) = (sources.join("target/dist"), sources.join("dist"));
    fs::create_dir_all(&work)?;
    let mut skipped = Skipped::default();
    let mut works = true;
    if !args.check {
        require_commit(&sources)?;
        let tools = Tools::install(&work)?;
        build(&Build::new(&sources, &tools)?, &dist, &mut skipped)?;
        // Somebody may have gone on with work meanwhile.
        require_commit(&sources)?;
        if args.twice {
            works = again(&sources, &work, &tools, &dist)?;
        }
    }
    works &= check::all(&dist, &work, &mut skipped)?;
    skipped.print();
    Ok(works)
}

/// What was not built or not run, and why.
#[derive(Default)]
struct Skipped(Vec<String>);

impl Skipped {
    fn add(&mut self, what: impl Into<String>) {
        let what = what.into();
        println!("SKIPPED: {what}");
        self.0.push(what);
    }

    fn print(&self) {
        if !self.0.is_empty() {
            println!("\nnot built, or not run:\n  {}", self.0.join("\n  "));
        }
    }
}

/// A package has the commit in it, and its date is that of all files: other changes are in neither.
fn require_commit(sources: &Path) -> Result<()> {
    let mut git = Command::new("git");
    // Where the checks have passed is in no artefact, and `cargo xtask long` has just written it.
    git.args(["status", "--short", "--", ".", ":!.ci/passed"]).current_dir(sources);
    let changed = output(&mut git)?;
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!("commit these changes first, or stash them: dist builds HEAD\n{changed}").into())
}

fn build(build: &Build, dist: &Path, skipped: &mut Skipped) -> Result<()> {
    fresh(dist)?;
    licences::write(build, dist)?;
    for arch in Arch::ALL {
        build.programs(arch, dist)?;
        wheels::build(build, arch, dist, skipped)?;
    }
    crates::package(build, &dist.join("crates"))?;
    fs::write(dist.join("BUILT-WITH"), build.built_with()?)?;
    sums::write(dist)?;
    println!("{}: {} files", dist.display(), sums::read(dist)?.len());
    Ok(())
}

/// Makes an empty directory.
fn fresh(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Ok(fs::create_dir_all(folder)?)
}

/// Builds from a clone whose path has another length. Returns whether the bytes are the same.
fn again(sources: &Path, work: &Path, tools: &Tools, dist: &Path) -> Result<bool> {
    let clone: PathBuf = work.join("a-second-clone/cringle");
    fresh(&clone)?;
    let mut git = Command::new("git");
    output(git.args(["clone", "--quiet"]).arg(sources).arg(&clone))?;
    let second = clone.join("dist");
    build(&Build::new(&clone, tools)?, &second, &mut Skipped::default())?;
    let differing = sums::differing(dist, &second)?;
    if differing.is_empty() {
        println!("built twice: all {} files have the same bytes", sums::read(dist)?.len());
        fs::remove_dir_all(&clone)?;
    } else {
        println!("built twice; these differ: {}", differing.join(", "));
    }
    Ok(differing.is_empty())
}
