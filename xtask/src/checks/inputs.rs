//! The inputs of a check, as one number: it differs if and only if something differs on which the
//! check's result depends.
//!
//! They are the contents in the work tree of
//!
//! - the packages that the check names, with their tests;
//! - the packages on which those depend by a path, without their tests: `cargo metadata` lists
//!   them, so that no list can miss one;
//! - `Cargo.toml` and `Cargo.lock` of the workspaces of all these, and the settings of cargo,
//!   rustup and clippy in these folders and in the root;
//! - the other paths that it names, and the files that are words of its command;
//!
//! and its command with the environment. git computes the ids of the contents, with an index and a
//! folder for objects that are removed again: so a check may run before the change is committed,
//! and the number stays the same afterwards.

use super::Check;
use crate::Result;
use crate::commands::{self, output};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folders of a package that packages which depend on it do not use.
const OWN: [&str; 3] = ["benches", "examples", "tests"];
/// What changes the result of a command of cargo in the folder in which it is.
const SETTINGS: [&str; 5] =
    [".cargo", "rust-toolchain", "rust-toolchain.toml", "clippy.toml", ".clippy.toml"];
/// The variables by which git names a repository.
const OF_A_REPOSITORY: [&str; 7] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_WORK_TREE",
];
/// The digits of the number: as many as git shows for a commit in a repository of any size.
const DIGITS: usize = 16;

/// The contents of the work tree, and the packages in it.
pub(crate) struct Inputs {
    root: PathBuf,
    /// The id of each file and folder, by its path from the root.
    ids: BTreeMap<String, String>,
    packages: BTreeMap<String, Package>,
}

/// What `cargo metadata` says of a package of this repository.
struct Package {
    directory: String,
    workspace: String,
    /// The directories of the packages on which it depends, and whether only its tests do.
    dependencies: Vec<(String, bool)>,
}

impl Inputs {
    /// Reads the work tree at `root` and the packages of these workspaces.
    pub(crate) fn read(root: &Path, workspaces: &[&str]) -> Result<Inputs> {
        let root = root.canonicalize()?;
        let mut packages = BTreeMap::new();
        for workspace in workspaces {
            read_packages(&root, workspace, &mut packages)?;
        }
        Ok(Inputs { ids: read_ids(&root)?, root, packages })
    }

    /// Returns the number for a check's inputs.
    pub(crate) fn of(&self, check: &Check) -> Result<String> {
        let line = check.line();
        let mut text = format!("{line}\n");
        for path in self.paths(check)? {
            let id = self.ids.get(&path);
            let id = id.ok_or_else(|| format!("check {}: no file or folder {path}", check.name))?;
            text.push_str(&format!("{path} {id}\n"));
        }
        let mut hash = git(&self.root, &["hash-object", "--stdin"]);
        let mut hash = hash.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        hash.stdin.take().expect("a pipe").write_all(text.as_bytes())?;
        let output = hash.wait_with_output()?;
        let id = String::from_utf8(output.stdout)?;
        Ok(id.get(..DIGITS).ok_or("git hash-object printed no id")?.to_owned())
    }

    /// The files and folders on which a check's result depends.
    fn paths(&self, check: &Check) -> Result<BTreeSet<String>> {
        let mut paths: BTreeSet<String> = check.paths.iter().map(|&it| it.to_owned()).collect();
        let mut found = BTreeSet::new();
        let mut workspaces = BTreeSet::from([""]);
        for &name in check.packages {
            let package = self.packages.get(name);
            let package =
                package.ok_or_else(|| format!("check {}: no package {name}", check.name))?;
            paths.insert(package.directory.clone());
            workspaces.insert(&package.workspace);
            for file in ["Cargo.toml", "Cargo.lock"] {
                paths.insert(join(&package.workspace, file));
            }
            for (dependency, _) in &package.dependencies {
                self.visit(dependency, &mut found)?;
            }
        }
        for directory in found {
            paths.insert(join(&self.in_directory(&directory)?.workspace, "Cargo.toml"));
            paths.extend(self.without_tests(&directory));
        }
        let of_command = check.command.split(|c: char| !is_of_path(c)).map(str::to_owned);
        paths.extend(of_command.filter(|word| word.contains('/') && self.ids.contains_key(word)));
        let settings = workspaces.iter().flat_map(|at| SETTINGS.map(|file| join(at, file)));
        paths.extend(settings.filter(|path| self.ids.contains_key(path)));
        Ok(paths)
    }

    /// Adds a package, and those on which its library depends.
    fn visit(&self, directory: &str, found: &mut BTreeSet<String>) -> Result<()> {
        if !found.insert(directory.to_owned()) {
            return Ok(());
        }
        for (dependency, for_tests) in &self.in_directory(directory)?.dependencies {
            if !for_tests {
                self.visit(dependency, found)?;
            }
        }
        Ok(())
    }

    fn in_directory(&self, directory: &str) -> Result<&Package> {
        let package = self.packages.values().find(|package| package.directory == directory);
        Ok(package.ok_or_else(|| format!("{directory} is in no known workspace"))?)
    }

    fn without_tests(&self, directory: &str) -> impl Iterator<Item = String> {
        let below = format!("{directory}/");
        let later = self.ids.range(below.clone()..).map(|(path, _)| path);
        let inside = later.map_while(move |path| Some((path, path.strip_prefix(&below)?)));
        let used = inside.filter(|(_, name)| !name.contains('/') && !OWN.contains(name));
        used.map(|(path, _)| path.clone())
    }
}

fn is_of_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || "./_-".contains(c)
}

fn join(directory: &str, file: &str) -> String {
    if directory.is_empty() { file.to_owned() } else { format!("{directory}/{file}") }
}

fn read_packages(
    root: &Path,
    workspace: &str,
    packages: &mut BTreeMap<String, Package>,
) -> Result<()> {
    let mut cargo = commands::cargo();
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version=1", "--manifest-path"]);
    cargo.arg(root.join(workspace).join("Cargo.toml"));
    let metadata: Value = serde_json::from_str(&output(&mut cargo)?)?;
    let inside = |path: &Value| -> Result<String> {
        let path = Path::new(path.as_str().ok_or("cargo metadata has another form")?);
        let path = path.strip_prefix(root).map_err(|_| format!("{} is outside", path.display()))?;
        Ok(path.to_str().ok_or("a path that is no text")?.to_owned())
    };
    let here = inside(&metadata["workspace_root"])?;
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let manifest = inside(&package["manifest_path"])?;
        let directory = manifest.trim_end_matches("Cargo.toml").trim_end_matches('/');
        let mut dependencies = Vec::new();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            if !dependency["path"].is_null() {
                dependencies.push((inside(&dependency["path"])?, dependency["kind"] == "dev"));
            }
        }
        let name = package["name"].as_str().ok_or("cargo metadata has another form")?;
        let (directory, workspace) = (directory.to_owned(), here.clone());
        packages.insert(name.to_owned(), Package { directory, workspace, dependencies });
    }
    Ok(())
}

/// Returns the ids of all files and folders of the work tree that git does not ignore.
fn read_ids(root: &Path) -> Result<BTreeMap<String, String>> {
    let place = |name| -> Result<PathBuf> {
        Ok(root.join(output(&mut git(root, &["rev-parse", "--git-path", name]))?.trim_end()))
    };
    let scratch = tempfile::Builder::new().prefix("cringle-inputs-").tempdir()?;
    let index = scratch.path().join("index");
    // With the times of the files in it, git reads only those that have changed.
    if let Err(error) = copy_with_time(&place("index")?, &index)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error.into());
    }
    let objects = scratch.path().join("objects");
    std::fs::create_dir(&objects)?;
    let known = place("objects")?;
    // No rule of the user hides a file.
    let aside = |arguments: &[&str]| {
        let mut git = git(root, arguments);
        git.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_VALUE_0", "");
        git.env("GIT_CONFIG_KEY_0", "core.excludesFile");
        git.env("GIT_INDEX_FILE", &index).env("GIT_OBJECT_DIRECTORY", &objects);
        git.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", &known);
        output(&mut git)
    };
    aside(&["add", "--all", "."])?;
    let tree = aside(&["write-tree"])?;
    let listed = aside(&["ls-tree", "-r", "-t", "-z", "--full-tree", tree.trim_end()])?;
    // `mode type id<tab>path`. The mode tells an executable from a file.
    let entries = listed.split('\0').filter_map(|entry| entry.split_once('\t'));
    Ok(entries.map(|(id, path)| (path.to_owned(), id.to_owned())).collect())
}

/// A command of git on the repository in this folder. In a hook, or below `git rebase --exec`, the
/// environment names a repository, which may be another one, and its index.
pub(super) fn git(folder: &Path, arguments: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.args(arguments).current_dir(folder);
    for name in OF_A_REPOSITORY {
        git.env_remove(name);
    }
    git
}

/// Copies a file with the time of its last change: git reads the files again that are not older
/// than its index, because their times alone do not show whether they have changed since.
fn copy_with_time(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::copy(from, to)?;
    let time = std::fs::metadata(from)?.modified()?;
    std::fs::OpenOptions::new().write(true).open(to)?.set_modified(time)
}

#[cfg(test)]
mod tests;
