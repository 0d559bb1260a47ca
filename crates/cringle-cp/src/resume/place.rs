//! Where a manifest may lie, and what an earlier run has left beside the targets.

use super::Resume;
use crate::listing::next_entries;
use crate::messages::{Reporter, quote, reason};
use crate::plan::{Copy, Usage};
use crate::replace::directory_of;
use crate::request::Request;
use crate::sys;
use crate::temporary;
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Fails if the manifest lies in a source or a target: it would be copied or overwritten. Returns
/// its identity; that of its directory if it does not exist.
pub(super) fn check(
    manifest: &OsStr,
    request: &Request,
    copies: &[Copy],
) -> Result<(u64, u64), Usage> {
    let named = std::fs::symlink_metadata(manifest).is_ok();
    let path = std::fs::canonicalize(manifest).or_else(|e| {
        if named {
            // The file would be created where the link points to.
            let name = quote(manifest);
            let text = format!("cannot use manifest {name}: {}; name a file", reason(&e));
            return Err(Usage::plain(text));
        }
        let directory = OsStr::from_bytes(directory_of(manifest.as_bytes()));
        std::fs::canonicalize(directory).map_err(|e| {
            let text = format!("the directory of manifest {}: {}", quote(manifest), reason(&e));
            Usage::plain(text)
        })
    })?;
    let id = |path: &Path, follow| {
        sys::stat_at(sys::CWD, &sys::c_string(path.as_os_str().as_bytes()), follow)
            .map(|stat| sys::id(&stat))
    };
    let own = id(&path, true).map_err(|e| {
        Usage::plain(format!("cannot use manifest {}: {}", quote(manifest), reason(&e)))
    })?;
    if !named {
        refuse_target(manifest, own, copies)?;
    }
    refuse_output(manifest, (own, named), request)?;
    let around: HashSet<_> = path.ancestors().filter_map(|path| id(path, true).ok()).collect();
    for copy in copies {
        let sides = [
            ("source", &copy.source, request.options.follows(true)),
            ("target", &copy.target, true),
        ];
        for (side, name, follow) in sides {
            if id(Path::new(name), follow).is_ok_and(|id| around.contains(&id)) {
                let (manifest, name) = (quote(manifest), quote(name));
                return Err(Usage::plain(format!(
                    "manifest {manifest} lies in the {side} {name}; put it elsewhere"
                )));
            }
        }
    }
    Ok(own)
}

/// Fails if another file that the command writes is the manifest, which has the identity `own`, or
/// would be created in the directory `own`.
fn refuse_output(
    manifest: &OsStr,
    (own, exists): ((u64, u64), bool),
    request: &Request,
) -> Result<(), Usage> {
    let id = |path: &[u8]| sys::stat_at(sys::CWD, &sys::c_string(path), true).map(|s| sys::id(&s));
    let outputs = [("--json", &request.json), ("--trace", &request.trace)];
    for (option, output) in outputs.into_iter().filter_map(|(o, file)| Some((o, file.as_ref()?))) {
        let is_same = if exists {
            id(output.as_bytes()).is_ok_and(|id| id == own)
        } else {
            Path::new(output).file_name() == Path::new(manifest).file_name()
                && id(directory_of(output.as_bytes())).is_ok_and(|id| id == own)
        };
        if is_same {
            let manifest = quote(manifest);
            let text = format!("manifest {manifest} is the file of {option}; name another file");
            return Err(Usage::plain(text));
        }
    }
    Ok(())
}

/// Fails if the manifest, which does not exist yet in this directory, has the name of a target.
fn refuse_target(manifest: &OsStr, directory: (u64, u64), copies: &[Copy]) -> Result<(), Usage> {
    let id = |path: &[u8]| sys::stat_at(sys::CWD, &sys::c_string(directory_of(path)), true);
    for Copy { target, .. } in copies {
        let is_same = Path::new(target).file_name() == Path::new(manifest).file_name()
            && id(target.as_bytes()).is_ok_and(|stat| sys::id(&stat) == directory);
        if is_same {
            let (manifest, target) = (quote(manifest), quote(target));
            let text = format!("manifest {manifest} is the target {target}; name another file");
            return Err(Usage::plain(text));
        }
    }
    Ok(())
}

impl Resume {
    /// Removes the temporary files of earlier runs beside the targets of the command line.
    pub(super) fn remove_leftovers_beside(&self, reporter: &Reporter, copies: &[Copy]) {
        let directories: BTreeSet<_> =
            copies.iter().map(|copy| directory_of(copy.target.as_bytes())).collect();
        for directory in directories {
            let flags = libc::O_RDONLY | libc::O_DIRECTORY;
            if let Ok(open) = sys::open_at(sys::CWD, &sys::c_string(directory), flags, 0) {
                self.remove_leftovers(reporter, &open, &|| quote(OsStr::from_bytes(directory)));
            }
        }
    }

    /// Removes the temporary files of earlier runs from the directory. Those of this run may be in
    /// use: another worker may write to the same directory by another name.
    pub(crate) fn remove_leftovers(
        &self,
        reporter: &Reporter,
        directory: &OwnedFd,
        path: &dyn Fn() -> String,
    ) {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let listed = match sys::open_at(directory.as_fd(), c".", flags, 0) {
            Ok(listed) => listed,
            Err(e) => {
                let what = "a temporary file of an interrupted run may remain in";
                return reporter.note(&format!("warning: {what} {}: {}", path(), reason(&e)));
            }
        };
        let (mut entries, mut buffer) = (Vec::new(), vec![0; 32 << 10]);
        let all = temporary::prefix_of_runs(self.numbers().0);
        let own = temporary::prefix_of_run(self.numbers());
        let is_left =
            |name: &[u8]| name.starts_with(all.as_bytes()) && !name.starts_with(own.as_bytes());
        loop {
            let more = next_entries(&listed, &mut buffer, 1, &mut entries);
            for entry in entries.drain(..) {
                if is_left(entry.name.to_bytes())
                    && let Err(e) = sys::unlink_at(listed.as_fd(), &entry.name)
                    && e.raw_os_error() != Some(libc::ENOENT)
                {
                    let name = quote(OsStr::from_bytes(entry.name.to_bytes()));
                    reporter.fail_with(&format!("cannot remove {name} in {}", path()), &e);
                }
            }
            if !more.unwrap_or(false) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::messages::Reporter;
    use crate::options::Options;
    use crate::request::Request;
    use crate::temporary::Temporaries;
    use std::fs;
    use std::os::fd::OwnedFd;

    /// A bind mount gives the directory of another worker a second name.
    #[test]
    fn temporary_files_of_this_run_stay() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("s"), "text").unwrap();
        let left = || {
            let options = Options::new().resume(at("m"));
            let names = ["s", "d"].map(|name| at(name).into_os_string()).to_vec();
            let request = Request { names, options, ..Request::default() };
            let resume = super::super::open(&request).ok().and_then(|(resume, _)| resume).unwrap();
            let beside = crate::sys::c_string(at("d").as_os_str().as_encoded_bytes());
            let make = |name: &std::ffi::CStr| {
                fs::File::create_new(place.path().join(name.to_str().unwrap()))
            };
            Temporaries::of(Some(resume.numbers())).make(&beside, make).unwrap();
            let directory = OwnedFd::from(fs::File::open(place.path()).unwrap());
            resume.remove_leftovers(&Reporter::printing("test"), &directory, &|| "here".into());
            let names = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
            let names = names.filter(|name| name.as_encoded_bytes().starts_with(b".cringle-cp."));
            names.collect::<Vec<_>>()
        };
        let (first, second) = (left(), left());
        assert_eq!((first.len(), second.len()), (1, 1));
        assert_ne!(first, second);
    }
}
