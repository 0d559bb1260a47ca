//! Where a manifest may lie, and what an earlier run has left beside the targets.

use super::Resume;
use crate::listing::next_entries;
use crate::messages::{Reporter, quote, reason};
use crate::options::Options;
use crate::plan::{Copy, Usage};
use crate::replace::directory_of;
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
    options: &Options,
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
    let around: HashSet<_> = path.ancestors().filter_map(|path| id(path, true).ok()).collect();
    for copy in copies {
        let sides =
            [("source", &copy.source, options.follows(true)), ("target", &copy.target, true)];
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

    /// Removes the temporary files of earlier runs from the directory. One that cannot be listed
    /// has none that could be removed.
    pub(crate) fn remove_leftovers(
        &self,
        reporter: &Reporter,
        directory: &OwnedFd,
        path: &dyn Fn() -> String,
    ) {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let Ok(listed) = sys::open_at(directory.as_fd(), c".", flags, 0) else { return };
        let (mut entries, mut buffer) = (Vec::new(), vec![0; 32 << 10]);
        let prefix = temporary::prefix(Some(self.number()));
        loop {
            let more = next_entries(&listed, &mut buffer, 1, &mut entries);
            for entry in entries.drain(..) {
                if entry.name.to_bytes().starts_with(prefix.as_bytes())
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
