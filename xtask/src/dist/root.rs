//! Debian systems in which the artefacts are installed: without a compiler, and without a network.

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
        if !path.exists() {
            let mut debootstrap = bootstrap();
            let half = roots.join(format!("{suite}-half"));
            debootstrap.args(["--variant=minbase", suite]).arg(&half);
            finish(debootstrap, &half, &path)?;
        }
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
    if !path.exists() {
        let half = roots.join(format!("bookworm-{debian}-half"));
        let mut debootstrap = bootstrap();
        debootstrap.args(["--foreign", "--variant=minbase", "--arch", debian, "bookworm"]);
        debootstrap.arg(&half);
        let unpack = "for package in \"$1\"/var/cache/apt/archives/*.deb; do \
                          dpkg-deb -x \"$package\" \"$1\"; done";
        finish(debootstrap, &half, &half)?;
        output(Command::new("sh").args(["-euc", unpack, "_"]).arg(&half))?;
        fs::rename(&half, &path)?;
    }
    Ok(path)
}

fn bootstrap() -> Command {
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.arg(format!("--include={INCLUDED}"));
    debootstrap
}

/// Takes the packages from where this machine takes its own.
fn finish(mut debootstrap: Command, half: &Path, path: &Path) -> Result<()> {
    let mirror = match std::env::var("CRINGLE_DEBIAN_MIRROR") {
        Ok(mirror) => mirror,
        Err(_) => {
            let mut targets = Command::new("apt-get");
            targets.args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]);
            let mirrors = output(&mut targets)?;
            let mirror = mirrors.lines().find(|line| line.ends_with("/debian/"));
            mirror.ok_or("apt-get knows no mirror of Debian; set CRINGLE_DEBIAN_MIRROR")?.to_owned()
        }
    };
    if half.exists() {
        fs::remove_dir_all(half)?;
    }
    println!("debootstrap {}", path.display());
    output(debootstrap.arg(mirror))?;
    if half != path {
        fs::rename(half, path)?;
    }
    Ok(())
}

pub(super) fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().to_owned()
}
