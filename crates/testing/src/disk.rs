//! Helpers for the tests of files: a directory on a real disk, and the situations in which a call
//! of the library can be made.

use crate::tools::{OnDrop, run};
use cringle::{Builder, fiber};
use std::cell::Cell;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Returns the directory of tests on the disk of the build, because `/tmp` may be a tmpfs: `tmp` in
/// the target directory.
pub fn place() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().nth(2).expect("the package is in a workspace");
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let place = root.join(target).join("tmp");
    std::fs::create_dir_all(&place).unwrap();
    place
}

/// Creates a temporary directory on the disk of the build.
pub fn directory() -> TempDir {
    tempfile::tempdir_in(place()).unwrap()
}

/// Whether a direct read of 100 bytes fails here. Some file systems (btrfs, tmpfs) perform it
/// through the page cache.
pub fn refuses_misaligned_reads() -> bool {
    let read = |file: &std::fs::File| file.read_at(&mut [0; 100], 1);
    probe(libc::O_DIRECT, read).is_err()
}

/// Whether the file system reads cached files without waiting (`RWF_NOWAIT`). A tmpfs does not.
pub fn reads_without_waiting() -> bool {
    let read = |file: &std::fs::File| {
        let mut bytes = [0_u8; 16];
        let slice = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: the slice names `bytes`, which is borrowed for the call.
        let read =
            unsafe { libc::preadv2(file.as_raw_fd(), &raw const slice, 1, 0, libc::RWF_NOWAIT) };
        usize::try_from(read).map_err(|_| std::io::Error::last_os_error())
    };
    probe(0, read).is_ok()
}

/// Whether the file system of the tests is on one block device, as ext4 is; not so btrfs and tmpfs,
/// whose devices have no driver (major number 0).
pub fn is_on_block_device() -> bool {
    libc::major(std::fs::metadata(place()).unwrap().dev()) != 0
}

/// Whether the file system of the tests is memory.
pub fn is_in_memory() -> bool {
    let place = CString::new(place().into_os_string().into_encoded_bytes()).unwrap();
    // SAFETY: the structure is plain data; the path is a C string.
    let status = unsafe {
        let mut status: libc::statfs = std::mem::zeroed();
        assert_eq!(libc::statfs(place.as_ptr(), &raw mut status), 0);
        status
    };
    // musl has another type for each of the two.
    i128::from(status.f_type) == i128::from(libc::TMPFS_MAGIC)
}

/// Calls `read` for a file that has just been written.
fn probe(
    flags: i32,
    read: impl FnOnce(&std::fs::File) -> std::io::Result<usize>,
) -> std::io::Result<usize> {
    let directory = directory();
    let path = directory.path().join("probe");
    std::fs::write(&path, [7; 8192]).unwrap();
    read(&std::fs::File::options().read(true).custom_flags(flags).open(path)?)
}

/// Creates a temporary directory with a short path, for sockets.
pub fn short_directory() -> TempDir {
    tempfile::tempdir_in("/tmp").unwrap()
}

/// Returns bytes that differ at every offset: each group of eight contains its number.
pub fn pattern(len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    // Not byte by byte: it is many bytes for a debug build.
    for number in 0..len.div_ceil(8) as u64 {
        bytes.extend_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Whether all bytes are this one. Not compared one by one: they are many for a debug build.
pub fn is_filled(bytes: &[u8], by: u8) -> bool {
    match bytes {
        [] => true,
        [first, rest @ ..] => *first == by && *rest == bytes[..rest.len()],
    }
}

/// Calls `f` outside of a runtime.
pub fn outside<T>(f: impl FnOnce() -> T) -> T {
    f()
}

/// Runs `f` on the only fiber, so that nothing else could run while it waits.
pub fn solitary<T>(f: impl FnOnce() -> T) -> T {
    by(&mut |f| run(Builder::new().workers(1), f), f)
}

/// Runs `f` beside a fiber that sleeps, so that calls are tried inline.
pub fn alone<T>(f: impl FnOnce() -> T) -> T {
    by(&mut |f| beside(fiber::park, f), f)
}

/// Runs `f` beside a fiber that is always ready, so that calls go through the ring.
pub fn in_company<T>(f: impl FnOnce() -> T) -> T {
    by(&mut |f| beside(fiber::yield_now, f), f)
}

/// Calls `f` by `way`. What `way` does is compiled once, and not for each `f`.
fn by<T>(way: &mut dyn FnMut(&mut dyn FnMut()), f: impl FnOnce() -> T) -> T {
    let (mut f, mut value) = (Some(f), None);
    way(&mut || value = f.take().map(|f| f()));
    value.expect("the closure has run")
}

fn beside(wait: fn(), f: &mut dyn FnMut()) {
    /// Ends the other fiber, even if `f` panics.
    struct Done<'a>(&'a Cell<bool>, fiber::Thread);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.set(true);
            self.1.unpark();
        }
    }
    run(Builder::new().workers(1), &mut || {
        let done = Cell::new(false);
        fiber::scope(|s| {
            let other = s.spawn_local(|| {
                while !done.get() {
                    wait();
                }
            });
            let _done = Done(&done, other.thread().clone());
            fiber::yield_now();
            f();
        });
    });
}

/// Runs `f` on a fiber that unwinds.
pub fn unwinding<T>(f: impl FnOnce() -> T) -> T {
    by(&mut unwinding_once, f)
}

fn unwinding_once(f: &mut dyn FnMut()) {
    beside(fiber::park, &mut || {
        let mut has_run = false;
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = OnDrop(|| {
                assert!(fiber::panicking());
                f();
                has_run = true;
            });
            std::panic::resume_unwind(Box::new("on purpose"));
        }));
        assert!(unwound.is_err() && has_run);
    });
}

/// Runs `f` in each situation.
pub fn everywhere(f: impl Fn()) {
    let f: &dyn Fn() = &f;
    for way in [outside, solitary, alone, in_company, unwinding] {
        way(f);
    }
}

/// Writes the file's pages to the disk and drops them from the page cache.
pub fn make_cold(file: &impl AsFd) {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: no pointers.
    let (synced, advised) =
        unsafe { (libc::fsync(fd), libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED)) };
    assert_eq!((synced, advised), (0, 0));
}

/// Returns the number of pages of a file that the page cache has. `mincore` reads the kernel's
/// tables only; an attempt to read (`RWF_NOWAIT`) starts the read, which may then end before the
/// kernel looks whether it would have to wait.
pub fn cached_pages(file: &impl AsFd) -> usize {
    let file = file.as_fd();
    let bytes = std::fs::File::from(file.try_clone_to_owned().unwrap()).metadata().unwrap().len();
    let mut pages = vec![0_u8; bytes.div_ceil(4096) as usize];
    // SAFETY: a new mapping, which no code accesses, and a byte for each of its pages.
    unsafe {
        let (fd, null) = (file.as_raw_fd(), std::ptr::null_mut());
        let (len, shared) = (bytes as usize, libc::MAP_SHARED);
        let mapping = libc::mmap(null, len, libc::PROT_READ, shared, fd, 0);
        assert_ne!(mapping, libc::MAP_FAILED);
        assert_eq!(libc::mincore(mapping, len, pages.as_mut_ptr()), 0);
        assert_eq!(libc::munmap(mapping, len), 0);
    }
    pages.iter().filter(|page| **page & 1 == 1).count()
}

pub fn make_fifo(path: &Path) {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is a C string.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

/// Returns the status flags of an open file.
pub fn status_flags(file: &impl AsFd) -> i32 {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_GETFL) }
}

/// Describes an error by the parts that the kernel or std determines.
pub fn essence(e: &std::io::Error) -> (std::io::ErrorKind, Option<i32>) {
    (e.kind(), e.raw_os_error())
}
