//! The replies of the server, from its state.

use super::{Op, State, is_victim};
use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry};
use std::ffi::OsStr;
use std::time::Duration;

pub(super) const AT_ONCE: Duration = Duration::ZERO;
pub(super) const FIRST: Generation = Generation(0);

pub(super) fn error(errno: i32) -> Errno {
    Errno::from_i32(errno)
}

pub(super) fn attributes(state: &State, number: u64) -> Option<FileAttr> {
    let node = state.nodes.get(&number)?;
    let (kind, mut size) = match (&node.children, &node.leads_to) {
        (Some(_), _) => (FileType::Directory, 4096),
        (None, Some(text)) => (FileType::Symlink, text.len() as u64),
        (None, None) => (FileType::RegularFile, node.bytes.len() as u64),
    };
    let mut blocks = size.div_ceil(512);
    if node.victim && node.children.is_none() {
        size = state.rules.claims.unwrap_or(size);
        if state.rules.no_blocks {
            blocks = 0;
        }
    }
    Some(FileAttr {
        ino: INodeNo(number),
        size,
        blocks,
        atime: node.times.0,
        mtime: node.times.1,
        ctime: node.times.1,
        crtime: node.times.1,
        kind,
        perm: node.perm,
        nlink: node.links,
        uid: node.owner.0,
        gid: node.owner.1,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    })
}

pub(super) fn entry(state: &State, number: u64, reply: ReplyEntry) {
    match attributes(state, number) {
        Some(attr) => reply.entry(&AT_ONCE, &attr, FIRST),
        None => reply.error(Errno::ENOENT),
    }
}

/// Answers the request for a new link.
pub(super) fn linked(state: &State, (number, name): (u64, &OsStr), reply: ReplyEntry) {
    match state.rules.links_despite_errors.filter(|_| is_victim(name)) {
        Some(errno) => reply.error(error(errno)),
        None => entry(state, number, reply),
    }
}

pub(super) fn attr(state: &State, number: u64, reply: ReplyAttr) {
    match attributes(state, number) {
        Some(attr) => reply.attr(&AT_ONCE, &attr),
        None => reply.error(Errno::ENOENT),
    }
}

pub(super) fn done(failed: Option<i32>, reply: ReplyEmpty) {
    match failed {
        Some(errno) => reply.error(error(errno)),
        None => reply.ok(),
    }
}

pub(super) fn fsync(state: &mut State, number: u64, reply: ReplyEmpty) {
    let failed = state.fails(Op::Fsync, number, 0);
    if let Some(node) = state.nodes.get_mut(&number).filter(|_| failed.is_none()) {
        node.unsynced = false;
    }
    done(failed, reply);
}
