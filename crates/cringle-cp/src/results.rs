//! Refuses a file of `--json` or `--trace` that the copy would read or write.
//!
//! The sources and targets of the command line are compared with the file, as are the names that a
//! directory's copy creates in the target, and the names of backups. Another file below the target
//! is allowed: `cp --json out.json FILE .`.

use crate::messages::quote;
use crate::options::Options;
use crate::plan::{Copy, Usage};
use crate::request::Request;
use cringle_command::outputs::{CommandFiles, Identity};
use cringle_command::recording;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Fails before anything is opened if a result would destroy a file, or cannot be written.
pub(crate) fn check(request: &Request, copies: &[Copy]) -> Result<(), Usage> {
    let options = &request.options;
    let files = files(request);
    for (option, path) in files.named_results() {
        copies.iter().try_for_each(|copy| check_one(options, (option, &path), copy))?;
    }
    let all = copies.iter().fold(files, |files, copy| files.uses(&copy.source).uses(&copy.target));
    all.check().map_err(|failure| Usage::plain(failure.message))
}

fn files(request: &Request) -> CommandFiles {
    // Without `--fsync`, no fiber runs.
    let environment = recording::environment_file().filter(|_| request.options.fsync);
    CommandFiles::default()
        .result("--json", request.json.as_deref())
        .result("--trace", request.trace.as_deref())
        .result(recording::VARIABLE, environment.filter(|_| request.trace.is_none()))
}

/// Returns the results that are existing regular files. The copy may still find them through links
/// within a tree.
pub(crate) fn existing(request: &Request) -> Vec<(&'static str, (u64, u64))> {
    let named = files(request).named_results().into_iter();
    let found = named.filter_map(|(option, path)| Some((option, path.metadata().ok()?)));
    let found = found.filter(|(_, found)| found.is_file());
    found.map(|(option, found)| (option, (found.dev(), found.ino()))).collect()
}

fn check_one(options: &Options, (option, path): (&str, &Path), copy: &Copy) -> Result<(), Usage> {
    let refuse = |what: &str, name: &OsStr| {
        let (path, name) = (quote(path.as_os_str()), quote(name));
        Err(Usage::plain(format!("the file {path} of {option} {what} {name}; name another file")))
    };
    let (source, target) = (Path::new(&copy.source), Path::new(&copy.target));
    let is_tree = options.recursive && source.is_dir();
    if is_tree && path_below(path, source).is_some() {
        return refuse("lies in the source", &copy.source);
    }
    let Some(name) = path.file_name() else { return Ok(()) };
    for (number, name) in replaced_names(options, name.as_bytes()).into_iter().enumerate() {
        let replaced = path.with_file_name(OsStr::from_bytes(name));
        let what = if number == 0 { "would be written as" } else { "would be the backup of" };
        if number > 0 && Identity::of(&replaced).is_some_and(|it| Some(it) == Identity::of(target))
        {
            return refuse(what, &copy.target);
        }
        let below = if is_tree { path_below(&replaced, target) } else { None };
        if below.is_some_and(|below| source.join(below).symlink_metadata().is_ok()) {
            return refuse(what, replaced.as_os_str());
        }
    }
    Ok(())
}

/// Returns the rest of the path after a directory, which may have another name there; `None` if it
/// does not lie in the directory.
fn path_below(path: &Path, directory: &Path) -> Option<PathBuf> {
    let directory = Identity::of(directory)?;
    let above =
        path.ancestors().skip(1).find(|above| Identity::of(above).as_ref() == Some(&directory));
    path.strip_prefix(above?).ok().map(Path::to_owned)
}

/// Returns the name, and each name whose backup has this name.
fn replaced_names<'a>(options: &Options, name: &'a [u8]) -> Vec<&'a [u8]> {
    let mut names = vec![name];
    if options.backup.is_none() {
        return names;
    }
    names.extend(name.strip_suffix(options.suffix.as_bytes()));
    let numbered = name.strip_suffix(b"~").and_then(|rest| {
        let base = rest.len() - rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        rest[..base].strip_suffix(b".~")
    });
    names.extend(numbered);
    names.retain(|name| !name.is_empty());
    names
}
