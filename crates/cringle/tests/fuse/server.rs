//! A file system in memory, served by a thread of the test. Reads and writes transfer only a part
//! of the request, as FUSE allows if the server opens its files with `FOPEN_DIRECT_IO`.

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, Session, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;

/// The options of the file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Files are opened with `FOPEN_DIRECT_IO`.
    pub(crate) direct: bool,
    /// The kernel may send several requests for one direct read or write (`FUSE_ASYNC_DIO`).
    pub(crate) async_dio: bool,
    /// The number of bytes that a reply transfers at most. (For cached files, a short read means
    /// the end.)
    pub(crate) most: usize,
}

/// A mounted file system with the empty files `0` to `9`; unmounted when dropped.
pub(crate) struct Mounted {
    session: Option<BackgroundSession>,
    directory: TempDir,
    files: Files,
    askers: Askers,
}

/// The kernel's numbers of the threads that asked for attributes, of a file or of the file system.
type Askers = Arc<Mutex<Vec<u32>>>;
type Files = Arc<Mutex<[Vec<u8>; 10]>>;

impl Mounted {
    /// Mounts the file system. Prints the reason and returns `None` if the machine does not allow
    /// it.
    pub(crate) fn new(manner: Manner) -> Option<Mounted> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let files = Files::default();
        let askers = Askers::default();
        let served = Served { manner, files: Arc::clone(&files), askers: Arc::clone(&askers) };
        let session = Session::new(served, directory.path(), &Config::default());
        match session.and_then(Session::spawn) {
            Ok(session) => Some(Mounted { session: Some(session), directory, files, askers }),
            Err(e) => {
                println!("skipped: no FUSE file system can be mounted (/dev/fuse): {e}");
                None
            }
        }
    }

    pub(crate) fn path(&self, file: usize) -> PathBuf {
        self.directory.path().join(file.to_string())
    }

    /// Returns the contents of a file from the server.
    pub(crate) fn bytes(&self, file: usize) -> Vec<u8> {
        self.files.lock().unwrap()[file].clone()
    }

    /// Returns the threads that have asked for attributes since the last call.
    pub(crate) fn take_askers(&self) -> Vec<u32> {
        std::mem::take(&mut self.askers.lock().unwrap())
    }

    pub(crate) fn fill(&self, file: usize, bytes: &[u8]) {
        self.files.lock().unwrap()[file] = bytes.to_vec();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            session.umount_and_join().unwrap();
        }
    }
}

struct Served {
    manner: Manner,
    files: Files,
    askers: Askers,
}

/// Attributes are not cached, because sizes change at any time.
const NO_TIME: Duration = Duration::ZERO;

impl Served {
    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let number = u64::from(ino);
        let (kind, perm, size) = match number {
            1 => (FileType::Directory, 0o755, 0),
            2..12 => (FileType::RegularFile, 0o666, self.with(ino, |bytes| bytes.len())),
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size: size as u64,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
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

    fn with<T>(&self, ino: INodeNo, f: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        f(&mut files[u64::from(ino) as usize - 2])
    }
}

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        if self.manner.async_dio {
            let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = Path::new(name).to_str().and_then(|name| name.parse::<u64>().ok());
        match number.and_then(|number| self.attr(INodeNo(number + 2))) {
            Some(attr) => reply.entry(&NO_TIME, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.askers.lock().unwrap().push(request.pid());
        reply.statfs(0, 0, 0, 0, 0, 512, 255, 0);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.askers.lock().unwrap().push(request.pid());
        match self.attr(ino) {
            Some(attr) => reply.attr(&NO_TIME, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<fuser::TimeOrNow>,
        _: Option<fuser::TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if let Some(size) = size {
            self.with(ino, |bytes| bytes.resize(size as usize, 0));
        }
        self.getattr_of(ino, reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let direct = FopenFlags::FOPEN_DIRECT_IO;
        let flags = if self.manner.direct { direct } else { FopenFlags::empty() };
        reply.opened(FileHandle(0), flags);
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
        let most = (size as usize).min(self.manner.most);
        self.with(ino, |bytes| {
            let from = bytes.len().min(offset as usize);
            let to = bytes.len().min(from + most);
            reply.data(&bytes[from..to]);
        });
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
        let data = &data[..data.len().min(self.manner.most)];
        self.with(ino, |bytes| {
            let (from, to) = (offset as usize, offset as usize + data.len());
            bytes.resize(bytes.len().max(to), 0);
            bytes[from..to].copy_from_slice(data);
        });
        reply.written(data.len() as u32);
    }
}

impl Served {
    fn getattr_of(&self, ino: INodeNo, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&NO_TIME, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }
}
