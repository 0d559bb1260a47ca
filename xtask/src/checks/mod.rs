//! The checks of a change, in three tiers.
//!
//! `cargo xtask land` runs the checks in [`landing`] for each commit, and those in [`by_path`] only
//! if their inputs differ from those on which they last passed. `cargo xtask long` runs those in
//! [`long`], which take minutes or hours, and the ones by path. A committed file has the inputs on
//! which each check last passed: see [`passed`] and [`inputs`].

pub(crate) mod by_path;
mod inputs;
pub(crate) mod landing;
pub(crate) mod long;
mod passed;
mod process;

use crate::Result;
use crate::commands::find;
use inputs::Inputs;
pub(crate) use passed::Passed;
pub(crate) use process::{End, Outcome, Sink};
use std::path::PathBuf;
use std::time::Duration;

/// The file with the inputs on which each check last passed.
const PASSED: &str = ".ci/passed";
/// The workspaces of this repository whose packages the checks name.
const WORKSPACES: [&str; 3] = ["", "bindings/python", "ecosystem"];

/// The variables that say where a tool is, that it is required, or how it is built.
const OF_TOOLS: [&str; 9] = [
    "CRINGLE_BINDINGS",
    "CRINGLE_BROWSER",
    "CRINGLE_DEBIAN_MIRROR",
    "CRINGLE_FREE_THREADED",
    "CRINGLE_GLIBC_SOURCES",
    "CRINGLE_GNU_CP",
    "CRINGLE_LIBRARY_OPTIONS",
    "CRINGLE_PYTHON",
    "CRINGLE_TOOLS",
];
/// How the names of variables begin that have options for all that is compiled, or for all tests.
const OF_BUILDS: [&str; 9] = [
    "CARGO_BUILD_",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_PROFILE_",
    "CARGO_TARGET_",
    "RUSTC_BOOTSTRAP",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
    "RUST_TEST_",
];
/// Where cargo builds, and on how many processors, changes no result.
const NOT_OF_BUILDS: [&str; 3] = ["CARGO_BUILD_JOBS", "CARGO_BUILD_TARGET_DIR", "CARGO_TARGET_DIR"];

/// One command that checks something.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    /// What it checks, in one line.
    pub(crate) about: &'static str,
    pub(crate) environment: &'static [(&'static str, &'static str)],
    /// For `sh -e`. With status 77 it has printed what it lacks, and has checked nothing.
    pub(crate) command: &'static str,
    /// Its inputs: packages, with everything that they depend on, …
    pub(crate) packages: &'static [&'static str],
    /// … and other files and folders.
    pub(crate) paths: &'static [&'static str],
    /// The programs without which it is skipped.
    pub(crate) needs: &'static [&'static str],
    /// About how long it takes on two cores, until it has passed once.
    pub(crate) minutes: u64,
}

impl Check {
    /// For `..Check::NONE`.
    pub(crate) const NONE: Check = Check {
        name: "",
        about: "",
        environment: &[],
        command: "",
        packages: &[],
        paths: &[],
        needs: &[],
        minutes: 1,
    };

    /// The command with its environment, to copy into a shell.
    pub(crate) fn line(&self) -> String {
        let (before, after) =
            if self.command.contains(';') { ("export ", "; ") } else { ("", " ") };
        let set = self.environment.iter().map(|(name, value)| {
            let quote = if value.contains(' ') { "'" } else { "" };
            format!("{before}{name}={quote}{value}{quote}{after}")
        });
        format!("{}{}", set.collect::<String>(), self.command)
    }

    /// Whether a variable of the caller's environment may change the result: it configures the
    /// library, its tests or all builds, it is not about a tool, and the check does not set it.
    fn differs_by(&self, name: &str) -> bool {
        let configures = name.starts_with("CRINGLE_") && !OF_TOOLS.contains(&name);
        let is_set = self.environment.iter().any(|(set, _)| *set == name);
        let builds = OF_BUILDS.iter().any(|begin| name.starts_with(begin));
        (configures || builds && !NOT_OF_BUILDS.contains(&name)) && !is_set
    }

    /// The first program that it needs and this machine lacks.
    pub(crate) fn lacks(&self) -> Option<&'static str> {
        self.needs.iter().copied().find(|name| find(name).is_none())
    }
}

/// The repository, and the inputs on which its checks have passed.
pub(crate) struct Repository {
    pub(crate) root: PathBuf,
    pub(crate) passed: Passed,
    /// The names of the caller's variables.
    variables: Vec<String>,
}

impl Repository {
    /// Reads the file of this repository, and prints which of its lines name no check.
    pub(crate) fn here() -> Result<Repository> {
        let root = crate::root();
        let passed = Passed::read(&root.join(PASSED))?;
        let known: Vec<&str> =
            by_path::CHECKS.iter().chain(long::CHECKS).map(|check| check.name).collect();
        for name in passed.unknown(&known) {
            println!("{PASSED}: no check is named {name}; remove the line");
        }
        let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        Ok(Repository { root, passed, variables: variables.collect() })
    }

    /// Reads the contents of the work tree.
    pub(crate) fn inputs(&self) -> Result<Inputs> {
        Inputs::read(&self.root, &WORKSPACES)
    }

    /// Whether the check has passed on these inputs.
    pub(crate) fn has_passed(&self, check: &Check, inputs: &Inputs) -> Result<bool> {
        Ok(self.passed.has(check.name, &inputs.of(check)?))
    }

    /// Runs a check. If it passes, its inputs are known and the same as before, and no variable of
    /// the caller may have changed the result, records it.
    pub(crate) fn run(
        &mut self,
        check: &Check,
        environment: &[(&str, String)],
        sink: &Sink,
        limit: Duration,
    ) -> Result<Outcome> {
        let has_inputs = !check.packages.is_empty() || !check.paths.is_empty();
        let other = self.variables.iter().find(|name| has_inputs && check.differs_by(name));
        if let Some(name) = other {
            println!("{}: {name} is set; not recorded", check.name);
        }
        let is_recorded = has_inputs && other.is_none();
        // Without git no inputs are known, and nothing is recorded.
        let number = |it: &Self| is_recorded.then(|| it.inputs().and_then(|it| it.of(check)));
        let before = number(self).and_then(Result::ok);
        let outcome = process::run(check, &self.root, environment, sink, limit)?;
        if let (Some(inputs), End::Passed) = (before, outcome.end) {
            if number(self).and_then(Result::ok).as_ref() == Some(&inputs) {
                self.passed.record(check.name, &inputs, outcome.seconds)?;
            } else {
                println!("{}: its inputs have changed meanwhile; not recorded", check.name);
            }
        }
        Ok(outcome)
    }
}

/// Minutes and seconds.
pub(crate) fn clock(seconds: u64) -> String {
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests;
