//! A FUSE file system with one file, the image of a disk. A write of the image that contains the
//! mark of a record fails with EIO while the disk fails.

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

/// Bytes by which the disk recognises data, as opposed to what the file system writes of its own.
pub(crate) const MARK: [u8; 16] = *b"data of the test";
const BLOCK: usize = 512;
const IMAGE: INodeNo = INodeNo(2);

/// What the disk does, and has done.
#[derive(Default)]
pub(crate) struct Behaviour {
    /// The number of writes of marked data that fail, of 100.
    pub(crate) failing_percent: AtomicU64,
    pub(crate) failures: AtomicU64,
    marked_writes: AtomicU64,
}

impl Behaviour {
    fn fails(&self, data: &[u8]) -> bool {
        let percent = self.failing_percent.load(Ordering::SeqCst);
        if percent == 0 || !data.chunks(BLOCK).any(has_mark) {
            return false;
        }
        let number = self.marked_writes.fetch_add(1, Ordering::SeqCst);
        let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let fails = random % 100 < percent;
        self.failures.fetch_add(fails.into(), Ordering::SeqCst);
        fails
    }
}

struct Image {
    file: std::fs::File,
    len: u64,
    behaviour: Arc<Behaviour>,
}

/// Mounts the file system on a directory. The file keeps the image.
pub(crate) fn serve(
    directory: &Path,
    file: std::fs::File,
    behaviour: Arc<Behaviour>,
) -> io::Result<BackgroundSession> {
    let len = file.metadata()?.len();
    Session::new(Image { file, len, behaviour }, directory, &Config::default())?.spawn()
}

impl Image {
    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o755, 0),
            IMAGE => (FileType::RegularFile, 0o600, self.len),
            _ => return None,
        };
        let (time, blocks) = (UNIX_EPOCH, size.div_ceil(BLOCK as u64));
        Some(FileAttr {
            ino,
            size,
            blocks,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

const TIME: Duration = Duration::from_secs(3600);

impl Filesystem for Image {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.add_capabilities(InitFlags::FUSE_BIG_WRITES);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attr(IMAGE).filter(|_| name == "image") {
            Some(attr) => reply.entry(&TIME, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&TIME, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Without a cache of its own, so that a write returns what became of it.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        let count = self.file.read_at(&mut bytes, offset).unwrap();
        reply.data(&bytes[..count]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.behaviour.fails(data) {
            return reply.error(Errno::EIO);
        }
        self.file.write_all_at(data, offset).unwrap();
        reply.written(data.len() as u32);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}

fn has_mark(block: &[u8]) -> bool {
    block.windows(MARK.len()).any(|bytes| bytes == MARK)
}
