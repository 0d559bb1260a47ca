//! What a descriptor is: a path, a socket and its peer, a child.
//!
//! Asked when the workers have answered, on the asking thread. The descriptor of an op that has ended
//! meanwhile may be another file's by then.

use std::collections::HashMap;
use std::os::fd::RawFd;

/// Descriptors that were looked at for one dump.
#[derive(Default)]
pub(super) struct Files(HashMap<RawFd, Option<String>>);

impl Files {
    /// What a person calls it.
    pub(super) fn describe(&mut self, fd: RawFd) -> Option<String> {
        self.0.entry(fd).or_insert_with(|| describe(fd)).clone()
    }
}

fn describe(fd: RawFd) -> Option<String> {
    let target = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    let target = target.to_string_lossy();
    if target.starts_with("socket:") {
        return Some(crate::sys::describe_socket(fd).unwrap_or_else(|| target.into_owned()));
    }
    if target == "anon_inode:[pidfd]" {
        return Some(child(fd).unwrap_or_else(|| target.into_owned()));
    }
    Some(target.into_owned())
}

/// The process behind a pidfd.
fn child(fd: RawFd) -> Option<String> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    Some(format!("child process {}", pid.trim()))
}
