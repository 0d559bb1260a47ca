//! The server: answers each request from the state, under the rules.

use super::bytes::{read, seek, write};
use super::replies::{AT_ONCE, FIRST, attr, attributes, done, entry, error, fsync, linked};
use super::{Node, Op, Shared, State, is_taken, is_victim, names, time, unlink};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

pub(super) struct Server {
    pub(super) shared: Arc<Shared>,
    pub(super) capabilities: InitFlags,
}

impl Server {
    fn opening(&self, state: &State, number: u64) -> FopenFlags {
        let direct = state.rules.direct && state.nodes.get(&number).is_some_and(|node| node.victim);
        if direct { FopenFlags::FOPEN_DIRECT_IO } else { FopenFlags::empty() }
    }

    fn remove(&self, op: Op, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut state = self.shared.lock();
        let Some(number) = state.child(parent.0, name) else { return reply.error(Errno::ENOENT) };
        let children = state.nodes.get(&number).and_then(|node| node.children.as_ref());
        let is_full = children.is_some_and(|children| !children.is_empty());
        let failed = state.fails(op, number, 0).or(is_full.then_some(libc::ENOTEMPTY));
        if failed.is_none() {
            unlink(&mut state, parent.0, name);
        }
        done(failed, reply);
    }

    fn stall(&self, number: u64, offset: u64) {
        let mut state = self.shared.lock();
        let stalls = |state: &State| {
            state.nodes.get(&number).is_some_and(|node| node.victim)
                && state.rules.stalls_at.is_some_and(|at| offset >= at)
        };
        state.stalled += 1;
        while stalls(&state) {
            state = self.shared.released.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.stalled -= 1;
    }
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for capability in self.capabilities {
            let _ = config.add_capabilities(capability);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut state = self.shared.lock();
        let Some(number) = state.child(parent.0, name) else { return reply.error(Errno::ENOENT) };
        match state.fails(Op::Lookup, number, 0) {
            Some(errno) => reply.error(error(errno)),
            None => entry(&state, number, reply),
        }
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.shared.lock().askers.push(request.pid());
        reply.statfs(0, 0, 0, 0, 0, 512, 255, 0);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let mut state = self.shared.lock();
        state.askers.push(request.pid());
        match state.fails(Op::Getattr, ino.0, 0) {
            Some(errno) => reply.error(error(errno)),
            None => attr(&state, ino.0, reply),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut state = self.shared.lock();
        let op = if size.is_some() { Op::Truncate } else { Op::Setattr };
        if let Some(errno) = state.fails(op, ino.0, 0) {
            return reply.error(error(errno));
        }
        let Some(node) = state.nodes.get_mut(&ino.0) else { return reply.error(Errno::ENOENT) };
        node.unsynced = true;
        if let Some(size) = size {
            node.bytes.resize(size as usize, 0);
            node.times.1 = SystemTime::now();
        }
        if let Some(mode) = mode {
            node.perm = (mode & 0o7777) as u16;
        }
        node.owner = (uid.unwrap_or(node.owner.0), gid.unwrap_or(node.owner.1));
        node.times = (atime.map_or(node.times.0, time), mtime.map_or(node.times.1, time));
        attr(&state, ino.0, reply);
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let mut state = self.shared.lock();
        let node = Node::new(Some(BTreeMap::new()), (mode & 0o7777) as u16, is_victim(name));
        let Some(number) = state.add(parent.0, name, node) else {
            return reply.error(Errno::ENOENT);
        };
        if let Some(errno) = state.fails(Op::Mkdir, number, 0) {
            unlink(&mut state, parent.0, name);
            return reply.error(error(errno));
        }
        entry(&state, number, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(Op::Unlink, parent, name, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(Op::Rmdir, parent, name, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut state = self.shared.lock();
        let Some(number) = state.child(parent.0, name) else { return reply.error(Errno::ENOENT) };
        if let Some(errno) = state.fails(Op::Rename, number, 0) {
            return reply.error(error(errno));
        }
        if flags.contains(RenameFlags::RENAME_NOREPLACE)
            && state.child(new_parent.0, new_name).is_some()
        {
            return reply.error(Errno::EEXIST);
        }
        if state.child(new_parent.0, new_name) != Some(number) {
            let node = state.nodes.get(&number);
            if node.is_some_and(|node| node.unsynced && node.leads_to.is_none()) {
                state.early.push(new_name.to_owned());
            }
            unlink(&mut state, new_parent.0, new_name);
            if let Some(names) = names(&mut state, parent.0) {
                names.remove(name);
            }
            if let Some(names) = names(&mut state, new_parent.0) {
                names.insert(new_name.to_owned(), number);
            }
        }
        reply.ok();
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut state = self.shared.lock();
        if let Some(errno) = state.fails(Op::Link, ino.0, 0) {
            return reply.error(error(errno));
        }
        if is_taken(&mut state, parent.0, name) {
            return reply.error(Errno::EEXIST);
        }
        if let Some(names) = names(&mut state, parent.0) {
            names.insert(name.to_owned(), ino.0);
        }
        if let Some(node) = state.nodes.get_mut(&ino.0) {
            node.links += 1;
        }
        linked(&state, (ino.0, name), reply);
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        leads_to: &Path,
        reply: ReplyEntry,
    ) {
        let mut state = self.shared.lock();
        if is_taken(&mut state, parent.0, name) {
            return reply.error(Errno::EEXIST);
        }
        let mut node = Node::new(None, 0o777, is_victim(name));
        node.leads_to = Some(leads_to.into());
        match state.add(parent.0, name, node) {
            Some(number) => linked(&state, (number, name), reply),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let state = self.shared.lock();
        match state.nodes.get(&ino.0).and_then(|node| node.leads_to.as_ref()) {
            Some(text) => reply.data(text.as_bytes()),
            None => reply.error(Errno::EINVAL),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let mut state = self.shared.lock();
        match state.fails(Op::Open, ino.0, 0) {
            Some(errno) => reply.error(error(errno)),
            None => reply.opened(FileHandle(0), self.opening(&state, ino.0)),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let mut state = self.shared.lock();
        let mut node = Node::new(None, (mode & 0o7777) as u16, is_victim(name));
        node.times.1 = SystemTime::now();
        let Some(number) = state.add(parent.0, name, node) else {
            return reply.error(Errno::ENOENT);
        };
        if let Some(errno) = state.fails(Op::Create, number, 0) {
            unlink(&mut state, parent.0, name);
            return reply.error(error(errno));
        }
        let flags = self.opening(&state, number);
        match attributes(&state, number) {
            Some(attr) => reply.created(&AT_ONCE, &attr, FIRST, FileHandle(0), flags),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.stall(ino.0, offset);
        match read(&mut self.shared.lock(), ino.0, offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.shared.lock();
        let written = write(&mut state, ino.0, offset, data);
        let writeback = self.capabilities.contains(InitFlags::FUSE_WRITEBACK_CACHE);
        // With a writeback cache, the kernel sends the time at which the program wrote.
        if let Some(node) = state.nodes.get_mut(&ino.0).filter(|_| !writeback) {
            node.times.1 = SystemTime::now();
        }
        match written {
            Ok(size) => reply.written(size as u32),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let mut state = self.shared.lock();
        let failed = state.fails(Op::Xattr, ino.0, 0);
        match &state.rules.unlisted_acl {
            Some(acl) if failed.is_none() && name == "system.posix_acl_access" => match size {
                0 => reply.size(acl.len() as u32),
                _ => reply.data(acl),
            },
            _ => reply.error(failed.map_or(Errno::EOPNOTSUPP, error)),
        }
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let mut state = self.shared.lock();
        match state.fails(Op::Xattr, ino.0, 0) {
            Some(errno) => reply.error(error(errno)),
            None if state.rules.unlisted_acl.is_some() => reply.error(Errno::EOPNOTSUPP),
            None if size == 0 => reply.size(0),
            None => reply.data(&[]),
        }
    }

    fn flush(&self, _: &Request, ino: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        done(self.shared.lock().fails(Op::Flush, ino.0, 0), reply);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        fsync(&mut self.shared.lock(), ino.0, reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        fsync(&mut self.shared.lock(), ino.0, reply);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let mut state = self.shared.lock();
        let handle = state.next_handle;
        state.next_handle += 1;
        let unseekable = state.rules.unseekable;
        let flags = if unseekable { FopenFlags::FOPEN_NONSEEKABLE } else { FopenFlags::empty() };
        reply.opened(FileHandle(handle), flags);
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.shared.lock().listings.remove(&fh.0);
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut state = self.shared.lock();
        // A position consists of the handle and the number of the next name.
        let (of, next) = (offset >> 32, offset as u32 as usize);
        if let Some(errno) = state.fails(Op::Readdir, ino.0, next as u64) {
            return reply.error(error(errno));
        }
        if offset == 0 {
            let children = state.nodes.get(&ino.0).and_then(|node| node.children.clone());
            state.listings.insert(fh.0, children.into_iter().flatten().collect());
        } else if of != fh.0 {
            return reply.error(Errno::EINVAL);
        }
        let names = state.listings.get(&fh.0).into_iter().flatten();
        for (position, (name, number)) in names.enumerate().skip(next) {
            let is_dir = state.nodes.get(number).is_some_and(|node| node.children.is_some());
            let is_link = state.nodes.get(number).is_some_and(|node| node.leads_to.is_some());
            let kind = match (is_dir, is_link) {
                (true, _) => FileType::Directory,
                (_, true) => FileType::Symlink,
                _ => FileType::RegularFile,
            };
            let after = fh.0 << 32 | (position as u64 + 1);
            if reply.add(INodeNo(*number), after, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn lseek(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let mut state = self.shared.lock();
        let failed = state.fails(Op::Seek, ino.0, offset as u64 + 1).map_or(Ok(()), Err);
        match failed.and_then(|()| seek(&state, ino.0, offset as u64, whence)) {
            Ok(offset) => reply.offset(offset as i64),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn copy_file_range(
        &self,
        _: &Request,
        from: INodeNo,
        _: FileHandle,
        offset: u64,
        to: INodeNo,
        _: FileHandle,
        offset_to: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let mut state = self.shared.lock();
        let most = state.rules.longest_range.unwrap_or(usize::MAX);
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(most);
        // A rule that fails reads or writes applies here, too.
        let copied = match state.fails(Op::CopyRange, from.0, offset + length as u64) {
            Some(errno) => Err(errno),
            None => read(&mut state, from.0, offset, length),
        };
        let copied = copied.and_then(|bytes| match bytes.len() {
            0 => Ok(0),
            _ => write(&mut state, to.0, offset_to, &bytes),
        });
        match copied {
            Ok(size) => reply.written(size as u32),
            Err(errno) => reply.error(error(errno)),
        }
    }
}
