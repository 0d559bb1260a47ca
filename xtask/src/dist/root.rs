//! Debian systems in which the artefacts are installed: without a compiler, and without a network.

use super::fresh;
use crate::Result;
use crate::commands::output;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A minimal system with Python, as debootstrap unpacks it. It is never changed.
pub(super) struct Root {
    pub(super) suite: &'static str,
    path: PathBuf,
}

/// What must be in the system beside the minimum.
const INCLUDED: &str = "python3,python3-venv";

impl Root {
    /// Unpacks the system below `roots`, if it is not there.
    pub(super) fn new(suite: &'static str, roots: &Path) -> Result<Root> {
        let path = roots.join(suite);
        unpack(suite, None, &path)?;
        Ok(Root { suite, path })
    }

    /// Runs a script in a copy that exists for this run, with `dist` as `/dist`. Returns what the
    /// script printed last, and how long it took.
    pub(super) fn run(&self, script: &str, dist: &Path) -> Result<(String, Duration)> {
        let copy = tempfile::tempdir()?;
        // The mounts are gone with the last process of the namespace.
        let mount = "mount -t tmpfs tmpfs \"$2\"; mkdir \"$2\"/up \"$2\"/work \"$2\"/root; \
                     mount -t overlay overlay \
                       -o \"lowerdir=$1,upperdir=$2/up,workdir=$2/work\" \"$2/root\"; cd \"$2/root\"; \
                     mount -t proc proc proc; mount --rbind /dev dev; mkdir dist; \
                     mount --bind -o ro \"$3\" dist; \
                     exec unshare --net chroot . /bin/sh -euc \"$4\"";
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-euc", mount, "_"]).arg(&self.path).arg(copy.path());
        unshare.arg(dist).arg(script).env_clear();
        unshare.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/root");
        let started = Instant::now();
        let printed = output(&mut unshare)?;
        Ok((last_line(&printed), started.elapsed()))
    }
}

/// The files of a system for another processor. Nothing in it has been run.
pub(super) fn unpacked(debian: &str, roots: &Path) -> Result<PathBuf> {
    let path = roots.join(format!("bookworm-{debian}"));
    unpack("bookworm", Some(debian), &path)?;
    Ok(path)
}

/// Makes a system for this processor or a foreign one, unless it is there.
fn unpack(suite: &str, foreign: Option<&str>, path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    println!("debootstrap {}", path.display());
    let half = path.with_extension("half");
    fresh(&half)?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args([&format!("--include={INCLUDED}"), "--variant=minbase"]);
    debootstrap.args(foreign.into_iter().flat_map(|debian| ["--foreign", "--arch", debian]));
    output(debootstrap.arg(suite).arg(&half).arg(mirror()?))?;
    if foreign.is_some() {
        let all = "for package in \"$1\"/var/cache/apt/archives/*.deb; do \
                       dpkg-deb -x \"$package\" \"$1\"; done";
        output(Command::new("sh").args(["-euc", all, "_"]).arg(&half))?;
    }
    Ok(fs::rename(half, path)?)
}

/// Where this machine takes its own packages from.
fn mirror() -> Result<String> {
    if let Ok(mirror) = std::env::var("CRINGLE_DEBIAN_MIRROR") {
        return Ok(mirror);
    }
    let mut targets = Command::new("apt-get");
    targets.args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]);
    let mirrors = output(&mut targets)?;
    let mirror = mirrors.lines().find(|line| line.ends_with("/debian/"));
    Ok(mirror.ok_or("apt-get knows no mirror of Debian; set CRINGLE_DEBIAN_MIRROR")?.to_owned())
}

pub(super) fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().to_owned()
}
