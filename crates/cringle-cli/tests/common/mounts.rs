//! Mounts file systems on small images.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system, which is unmounted on drop, together with its loop device.
pub(crate) struct Mount(pub(crate) PathBuf);

/// Runs a program; returns its standard error if it fails.
pub(crate) fn done_by(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output =
        Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

impl Mount {
    /// Mounts a new file system. Returns `None`, and prints why, if this machine or user cannot.
    pub(crate) fn new(base: &Path, kind: &str, mebibytes: u64) -> Option<Mount> {
        Mount::try_new(base, kind, mebibytes)
            .inspect_err(|why| eprintln!("skipped: no {kind} here: {why}"))
            .ok()
    }

    fn try_new(base: &Path, kind: &str, mebibytes: u64) -> Result<Mount, String> {
        let place = base.join(kind);
        fs::create_dir(&place).unwrap();
        let at = place.to_str().unwrap();
        if kind == "tmpfs" {
            let size = format!("size={mebibytes}m");
            done_by("mount", &["-t", "tmpfs", "-o", &size, "cringle-test", at])?;
            return Ok(Mount(place));
        }
        let image = base.join(format!("{kind}.image"));
        fs::File::create(&image).unwrap().set_len(mebibytes << 20).unwrap();
        let image = image.to_str().unwrap();
        let force = if kind == "ext4" { "-F" } else { "-f" };
        done_by(&format!("mkfs.{kind}"), &["-q", force, image])?;
        done_by("mount", &["-o", "loop", image, at])?;
        Ok(Mount(place))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let at = self.0.to_str().unwrap();
        if let Err(why) = done_by("umount", &[at]).or_else(|_| done_by("umount", &["-l", at])) {
            eprintln!("still mounted: {why}");
        }
    }
}
