//! The process: its user, and the mode of new files.

use rustix::fs::Mode;
use rustix::process::{self, Gid};

/// Returns the process's umask, from `/proc` if that is mounted: the system call can only read it
/// by changing it for a moment, in which another thread may create a file.
pub(crate) fn umask() -> u32 {
    // The name of the process, which is in the file, may have any bytes.
    let status = std::fs::read("/proc/self/status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or_else(|| {
        let mask = process::umask(Mode::empty());
        process::umask(mask);
        mask.as_raw_mode()
    })
}

pub(crate) fn effective_user() -> u32 {
    process::geteuid().as_raw()
}

/// Describes the effective user, group and capabilities, and the other groups: what decides which
/// attributes can be set.
pub(crate) fn credentials() -> Vec<u8> {
    let mut groups = process::getgroups().unwrap_or_default();
    groups.sort_unstable_by_key(|group| group.as_raw());
    let ids = [process::geteuid().as_raw(), process::getegid().as_raw()];
    let ids = ids.into_iter().chain(groups.into_iter().map(Gid::as_raw));
    // A filter may refuse the call.
    let effective = rustix::thread::capabilities(None).map_or(0, |sets| sets.effective.bits());
    ids.flat_map(u32::to_le_bytes).chain(effective.to_le_bytes()).collect()
}
