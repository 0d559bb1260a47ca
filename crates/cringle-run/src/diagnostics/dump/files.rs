//! Descriptions of descriptors: a path, a socket with its peer, a child process.
//!
//! The thread that makes the dump looks them up after the workers have answered. If an op has ended
//! meanwhile, its descriptor may belong to another file by then.

use cringle_sys::plainly;
use std::collections::HashMap;
use std::os::fd::RawFd;

/// The descriptors looked up for one dump.
#[derive(Default)]
pub(super) struct Files(HashMap<RawFd, Option<String>>);

impl Files {
    /// Returns a description; `None` if the descriptor is closed.
    pub(super) fn describe(&mut self, fd: RawFd) -> Option<String> {
        self.0.entry(fd).or_insert_with(|| describe(fd)).clone()
    }
}

fn describe(fd: RawFd) -> Option<String> {
    let target = plainly(|| std::fs::read_link(format!("/proc/self/fd/{fd}"))).ok()?;
    let target = target.to_string_lossy();
    if target.starts_with("socket:") {
        return Some(cringle_sys::describe_socket(fd).unwrap_or_else(|| target.into_owned()));
    }
    if target == "anon_inode:[pidfd]" {
        return Some(child(fd).unwrap_or_else(|| target.into_owned()));
    }
    Some(target.into_owned())
}

/// Describes the process behind a pidfd.
fn child(fd: RawFd) -> Option<String> {
    let info = plainly(|| std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}"))).ok()?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    Some(format!("child process {}", pid.trim()))
}
