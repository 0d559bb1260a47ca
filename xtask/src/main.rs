//! The maintenance tasks of this repository: `cargo xtask --help`.

#[cfg(test)]
mod book_tests;
mod checks;
mod commands;
mod counts;
mod crates;
mod dist;
mod kernels;
mod land;
mod long;
mod processes;
mod rustdoc;
mod semver;
mod suite;
mod switches;
mod tidy;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The root of the repository: cargo says where this package is. The place where it was compiled
/// may be that of another repository, if this one was moved or copied, or shares the target
/// directory.
fn root() -> PathBuf {
    root_of(std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from))
}

/// Without cargo, the place where it was compiled has to do.
fn root_of(package: Option<PathBuf>) -> PathBuf {
    let package = package.filter(|package| package.ends_with("xtask"));
    let mut root = package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    root.pop();
    root
}

/// The directory of all that is built, which may be relative to the root of the repository.
fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from)
}

#[derive(Parser)]
#[command(name = "cargo xtask", about)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build all that users install, and install and run it
    Dist(dist::Args),
    /// Run the tests of the library on other kernels, in virtual machines
    Kernels(kernels::Args),
    /// Check a change before it lands
    Land(land::Args),
    /// Run the checks that take minutes or hours: other targets, sanitizers, the full generators
    Long(long::Args),
    /// Compare the public API with that of the commit in .ci/api-baseline, by cargo-semver-checks
    Semver(semver::Args),
    /// Build all tests, and run their programs side by side
    Test(suite::Args),
    /// Check sizes, budgets, imports between rooms and the reasons of `unsafe`
    Tidy(tidy::Args),
    /// Check the machine code of the switch to a fiber's stack
    Switches(switches::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Dist(args) => dist::run(&args),
        Task::Kernels(args) => kernels::run(&args),
        Task::Land(args) => land::run(&args),
        Task::Long(args) => long::run(&args),
        Task::Semver(args) => semver::run(&args),
        Task::Test(args) => suite::run(&args),
        Task::Tidy(args) => tidy::run(&args),
        Task::Switches(args) => switches::run(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_where_cargo_says() {
        assert_eq!(root_of(Some("/moved/xtask".into())), PathBuf::from("/moved"));
        let compiled = root_of(None);
        assert!(compiled.join("xtask/src/main.rs").exists());
        assert_eq!(root_of(Some("/moved/crates/cringle".into())), compiled, "another package");
    }
}
