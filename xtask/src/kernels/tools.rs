//! The programs that the task needs on this machine, and how to install them.

use crate::Result;
use crate::commands::find;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The programs, with the Debian packages that contain them.
const NEEDED: [(&str, &str); 7] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("mkfs.ext4", "e2fsprogs"),
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
    ("strip", "binutils"),
    ("ldd", "libc-bin"),
];

/// Checks that every program is installed.
///
/// # Errors
///
/// The missing programs, with the command that installs them.
pub(super) fn require() -> Result<()> {
    if !cfg!(target_arch = "x86_64") {
        return Err("the machines are x86-64: run this on x86-64, so that the tests fit".into());
    }
    let missing: Vec<_> = NEEDED.into_iter().filter(|(tool, _)| find(tool).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let (tools, packages): (Vec<_>, Vec<_>) = missing.into_iter().unzip();
    let (tools, packages) = (tools.join(", "), packages.join(" "));
    Err(format!(
        "{tools}: not found; on Debian and its derivatives:\n  \
         apt-get install --no-install-recommends {packages}"
    )
    .into())
}

pub(super) fn command(tool: &str) -> Command {
    Command::new(find(tool).unwrap_or_else(|| tool.into()))
}

/// Returns the shared libraries of a program, including the loader; none for a static program.
pub(super) fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let listed = command("ldd").arg(program).output()?;
    let listed = String::from_utf8(listed.stdout)?;
    let path =
        |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(Into::into);
    Ok(listed.lines().filter_map(path).collect())
}
