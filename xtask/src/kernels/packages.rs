//! Debian's kernels: which there are, and what is inside of one.
//!
//! The `cloud` flavour has NVMe and ext4 built in, so that it boots from the disk without an initramfs.

use super::tools::{command, output};
use crate::Result;
use std::fmt;
use std::path::{Path, PathBuf};

/// One that can be downloaded.
#[derive(Clone)]
pub(super) struct Kernel {
    /// As `uname -r` says it.
    pub(super) version: String,
}

impl Kernel {
    fn package(&self) -> String {
        format!("linux-image-{}", self.version)
    }

    /// `6.1` of `6.1.0-56-cloud-amd64`.
    fn series(&self) -> &str {
        let dots = self.version.match_indices('.').nth(1);
        dots.map_or(self.version.as_str(), |(at, _)| &self.version[..at])
    }

    /// Its numbers, by which versions are ordered.
    fn numbers(&self) -> Vec<u64> {
        let words = self.version.split(|c: char| !c.is_ascii_digit());
        words.filter_map(|word| word.parse().ok()).collect()
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.version)
    }
}

/// All that the package sources of this machine have, oldest first.
pub(super) fn known() -> Result<Vec<Kernel>> {
    let names = output(command("apt-cache").args(["pkgnames", "linux-image-"]))?;
    let mut kernels: Vec<_> = names
        .lines()
        .filter_map(|name| name.strip_prefix("linux-image-"))
        .filter(|version| version.ends_with("-cloud-amd64"))
        .map(|version| Kernel { version: version.to_owned() })
        .filter(|kernel| kernel.numbers().len() > 3)
        .collect();
    if kernels.is_empty() {
        let sources = "they are those of Debian: a file in /etc/apt/sources.list.d, its key, and \
                       `apt-get update`";
        return Err(
            format!("the package sources have no linux-image-*-cloud-amd64; {sources}").into()
        );
    }
    kernels.sort_by_key(Kernel::numbers);
    Ok(kernels)
}

/// The newest that begins with each of the given versions; without any, the newest of each series.
pub(super) fn choose(known: &[Kernel], wanted: &[String]) -> Result<Vec<Kernel>> {
    if wanted.is_empty() {
        let next = known.iter().skip(1).map(Some).chain([None]);
        let last = known
            .iter()
            .zip(next)
            .filter(|(kernel, next)| next.is_none_or(|next| next.series() != kernel.series()));
        return Ok(last.map(|(kernel, _)| kernel.clone()).collect());
    }
    let newest = |version: &String| {
        let found = known.iter().rfind(|kernel| begins_with(&kernel.version, version));
        found
            .cloned()
            .ok_or_else(|| format!("no kernel {version} is known; --list shows which are").into())
    };
    wanted.iter().map(newest).collect()
}

/// Whether `6.1` is the beginning of `6.1.0-56-cloud-amd64`, and not of `6.12`.
fn begins_with(version: &str, start: &str) -> bool {
    let rest = version.strip_prefix(start);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Downloads it, unless it is there, and returns its image.
pub(super) fn unpack(kernel: &Kernel, into: &Path) -> Result<PathBuf> {
    let place = into.join(kernel.package());
    let image = place.join("boot").join(format!("vmlinuz-{}", kernel.version));
    if image.exists() {
        return Ok(image);
    }
    output(command("apt-get").args(["download", &kernel.package()]).current_dir(into))?;
    let package = downloaded(kernel, into)?;
    let half = into.join("half");
    if half.exists() {
        std::fs::remove_dir_all(&half)?;
    }
    output(command("dpkg-deb").arg("-x").arg(&package).arg(&half))?;
    std::fs::rename(&half, &place)?;
    std::fs::remove_file(package)?;
    Ok(image)
}

fn downloaded(kernel: &Kernel, into: &Path) -> Result<PathBuf> {
    let start = format!("{}_", kernel.package());
    for entry in std::fs::read_dir(into)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&start) {
            return Ok(entry.path());
        }
    }
    Err(format!("apt-get has downloaded {}, but not to {}", kernel.package(), into.display())
        .into())
}
