//! Debian's kernel packages: lists, downloads and unpacks them.
//!
//! The `cloud` flavour has NVMe and ext4 built in, and so boots from the disk without an initramfs.

use super::tools::command;
use crate::Result;
use crate::commands::output;
use std::fmt;
use std::path::{Path, PathBuf};

/// A kernel that can be downloaded.
#[derive(Clone)]
pub(super) struct Kernel {
    /// The version, as `uname -r` prints it.
    pub(super) version: String,
}

impl Kernel {
    /// Returns the package with the kernel's image, and the image's place in it. In Debian's suites
    /// after 13 the package `linux-image` is empty, and depends on `linux-binary`.
    fn package(&self) -> Result<(String, PathBuf)> {
        let Kernel { version } = self;
        let binary = format!("linux-binary-{version}");
        let names = output(command("apt-cache").args(["pkgnames", &binary]))?;
        Ok(if names.lines().any(|name| name == binary) {
            (binary, format!("usr/lib/modules/{version}/vmlinuz").into())
        } else {
            (format!("linux-image-{version}"), format!("boot/vmlinuz-{version}").into())
        })
    }

    /// `6.1` of `6.1.0-56-cloud-amd64`.
    fn series(&self) -> &str {
        let dots = self.version.match_indices('.').nth(1);
        dots.map_or(self.version.as_str(), |(at, _)| &self.version[..at])
    }

    /// The numbers in the version, by which versions are ordered.
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

/// Returns all kernels in the package sources of this machine, oldest first.
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
        let sources = "add Debian's: a file in /etc/apt/sources.list.d, its key, and `apt-get \
                       update`";
        return Err(
            format!("the package sources have no linux-image-*-cloud-amd64; {sources}").into()
        );
    }
    kernels.sort_by_key(Kernel::numbers);
    Ok(kernels)
}

/// Returns the newest kernel that begins with each of the wanted versions; without any, the newest
/// of each series.
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
            .ok_or_else(|| format!("no kernel begins with {version}; --list shows all").into())
    };
    wanted.iter().map(newest).collect()
}

/// Returns whether a version begins with whole numbers: `6.1` begins `6.1.0-56-cloud-amd64`, not
/// `6.12`.
fn begins_with(version: &str, start: &str) -> bool {
    let rest = version.strip_prefix(start);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns the kernel's image, after downloading and unpacking the package if necessary.
pub(super) fn unpack(kernel: &Kernel, into: &Path) -> Result<PathBuf> {
    let (name, image) = kernel.package()?;
    let directory = into.join(&name);
    let image = directory.join(image);
    if image.exists() {
        return Ok(image);
    }
    output(command("apt-get").args(["download", &name]).current_dir(into))?;
    let package = downloaded(&name, into)?;
    let half = into.join("half");
    if half.exists() {
        std::fs::remove_dir_all(&half)?;
    }
    output(command("dpkg-deb").arg("-x").arg(&package).arg(&half))?;
    std::fs::rename(&half, &directory)?;
    std::fs::remove_file(package)?;
    Ok(image)
}

fn downloaded(name: &str, into: &Path) -> Result<PathBuf> {
    let start = format!("{name}_");
    for entry in std::fs::read_dir(into)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&start) {
            return Ok(entry.path());
        }
    }
    Err(format!("apt-get downloaded {name}, but not to {}", into.display()).into())
}
