//! Files and fibers that calls wait for.

use cringle::block::{Batch, BlockIo, FixedBufs, FixedFile};
use cringle::fiber;
use cringle::fs::{File, OpenOptions};
use cringle_testing::disk;
use cringle_testing::tools::*;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Files and fibers to wait for, and how to end each wait.
pub(crate) struct Fixture {
    /// Empty until the release.
    pub(crate) empty: File,
    pub(crate) into_empty: File,
    /// Full until the release.
    pub(crate) full: File,
    pub(crate) out_of_full: File,
    /// An event counter, from which each read takes one. Its read is the one op that may be in
    /// flight. The file is registered, so that its reads have an offset: a read without an offset
    /// waits for a peer, and does not count as in flight.
    pub(crate) blocker: File,
    /// Its cursor is locked by a fiber that waits until another op may be in flight.
    pub(crate) held: File,
    /// Opened by the library, so that the library knows every user of its cursor.
    pub(crate) own: File,
    /// The same, which the page cache does not answer.
    pub(crate) direct: File,
    pub(crate) disk: tempfile::TempDir,
    pub(crate) sleep: Duration,
    pub(crate) released: AtomicBool,
    pub(crate) unblocked: AtomicBool,
    pub(crate) parked: Mutex<Vec<fiber::Thread>>,
    pub(crate) block_io: BlockIo,
}

impl Fixture {
    pub(crate) fn new(sleep: Duration) -> Fixture {
        let (empty, into_empty) = pipe();
        let (out_of_full, full) = pipe();
        fill(&full);
        let blocker = counter();
        let disk = disk::directory();
        std::fs::write(disk.path().join("held"), disk::pattern(1 << 16)).unwrap();
        std::fs::write(disk.path().join("file"), disk::pattern(1 << 16)).unwrap();
        disk::make_fifo(&disk.path().join("fifo"));
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECT);
        let held = options.open(disk.path().join("held")).unwrap();
        let direct = options.open(disk.path().join("file")).unwrap();
        let mut options = OpenOptions::new();
        let own = options.read(true).write(true).open(disk.path().join("file")).unwrap();
        let block_io = BlockIo::builder().build().unwrap();
        let (released, unblocked) = (AtomicBool::new(false), AtomicBool::new(false));
        let parked = Mutex::default();
        Fixture {
            empty,
            into_empty,
            full,
            out_of_full,
            blocker,
            held,
            own,
            direct,
            disk,
            sleep,
            released,
            unblocked,
            parked,
            block_io,
        }
    }

    pub(crate) fn file(&self) -> File {
        let path = self.disk.path().join("file");
        std::fs::File::options().read(true).write(true).open(path).unwrap().into()
    }

    /// Has the one op in flight that the limit allows, until the release.
    pub(crate) fn exhaust_limit(&self) {
        let counter = FixedFile::register(&self.blocker).unwrap();
        let mut bufs = FixedBufs::new(1, 8).unwrap();
        let mut batch = Batch::new();
        let read = batch.read_fixed(&counter, &mut bufs[0], 0);
        assert_eq!(batch.submit().get(read).unwrap(), 8);
    }

    /// Ends every wait. The caller does not wait.
    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::SeqCst);
        if self.unblocked.swap(true, Ordering::SeqCst) {
            return;
        }
        // Plain calls suffice: none of them blocks.
        plain(&self.into_empty).write_all(&[7; 8]).unwrap();
        plain(&self.blocker).write_all(&7u64.to_ne_bytes()).unwrap();
        assert!(plain(&self.out_of_full).read(&mut vec![0; 1 << 16]).unwrap() > 0);
        self.parked.lock().unwrap().iter().for_each(fiber::Thread::unpark);
    }

    /// Opens both ends of the FIFO, so that waiting opens of it succeed.
    pub(crate) fn open_fifo(&self) -> std::fs::File {
        std::fs::File::options().read(true).write(true).open(self.fifo()).unwrap()
    }

    pub(crate) fn fifo(&self) -> std::path::PathBuf {
        self.disk.path().join("fifo")
    }

    pub(crate) fn is_released(&self) -> bool {
        self.released.load(Ordering::SeqCst)
    }

    /// Makes the release unpark the calling fiber.
    pub(crate) fn unpark_on_release(&self) {
        self.parked.lock().unwrap().push(fiber::current());
    }
}

/// Returns the same file, with std's calls.
pub(crate) fn plain(file: &File) -> std::fs::File {
    file.as_fd().try_clone_to_owned().unwrap().into()
}

/// Creates an event counter, from which each read takes one.
pub(crate) fn counter() -> File {
    // SAFETY: no pointers are passed, and the new descriptor has no other owner.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd).into()
    }
}

pub(crate) fn fill(pipe: &File) {
    let fd = pipe.as_raw_fd();
    // SAFETY: the only pointer is to a buffer that lives for the call.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        while libc::write(fd, [0u8; 4096].as_ptr().cast(), 4096) > 0 {}
        libc::fcntl(fd, libc::F_SETFL, flags);
    }
}
