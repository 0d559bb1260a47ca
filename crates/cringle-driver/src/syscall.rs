//! System calls on files that io_uring has no op for, as data.
//!
//! A thread of the pool makes them. Arguments that do not fit into an op of 32 bytes lie in the
//! waiting frame, behind a pointer (**I1**).

use cringle_sys::{errno, syscall};
use std::ffi::{c_char, c_int};
use std::os::fd::RawFd;

/// One system call. Its pointers stay valid until the call has returned.
#[derive(Clone, Copy, Debug)]
pub enum Syscall {
    /// `getdents64`, until the buffer is full or the directory has ended; the result is the number
    /// of bytes.
    ReadDir { fd: RawFd, out: *mut Entries },
    /// `readlinkat`, into a [`PathBuffer`].
    ReadLink { dir: RawFd, path: *const c_char, out: *mut PathBuffer },
    /// `realpath`, into a [`PathBuffer`]; the result is the length.
    RealPath { path: *const c_char, out: *mut PathBuffer },
    /// `fchmodat`; `fchmod` of the descriptor if the path is null.
    SetMode { fd: RawFd, path: *const c_char, mode: u32 },
    /// `fchownat`; with `AT_EMPTY_PATH` and an empty path, of the descriptor.
    SetOwner { dir: RawFd, path: *const c_char, owner: *const Owner },
    /// `utimensat` of a path relative to `fd`; `futimens` of the descriptor if the path is null.
    SetTimes { fd: RawFd, path: *const c_char, times: *const Times },
    /// `flock`.
    Lock { fd: RawFd, how: c_int },
    /// `copy_file_range`.
    CopyRange { from: RawFd, to: RawFd, offsets: *mut [i64; 2], len: u32 },
    /// `ioctl(FICLONERANGE)`.
    Clone { to: RawFd, range: *const libc::file_clone_range },
    /// `BLKDISCARD`, of an offset and a length.
    Discard { fd: RawFd, range: *const [u64; 2] },
    /// `F_SET_RW_HINT`.
    SetWriteLife { fd: RawFd, life: *const u64 },
    /// `lseek` by the offset behind the pointer, which then holds the new position.
    Seek { fd: RawFd, whence: c_int, offset: *mut i64 },
    /// `listxattr`: the names of the extended attributes.
    ListXattrs(*const XattrCall),
    /// `removexattr`.
    RemoveXattr(*const XattrCall),
    /// `chroot`.
    ChangeRoot { path: *const c_char },
}

/// Room for the longest path of the kernel, with its terminating null.
pub type PathBuffer = [u8; libc::PATH_MAX as usize];

/// The owner of a file. `u32::MAX` leaves the user or the group unchanged.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    pub user: u32,
    pub group: u32,
    pub flags: c_int,
}

/// The times of last access and modification, and the flags of `utimensat`.
#[derive(Clone, Copy)]
pub struct Times {
    pub stamps: [libc::timespec; 2],
    pub flags: c_int,
}

/// A call on extended attributes: of `path`, or of `fd` if the path is null.
#[derive(Clone, Copy, Debug)]
pub struct XattrCall {
    pub fd: RawFd,
    pub path: *const c_char,
    pub name: *const c_char,
    pub value: *mut u8,
    pub len: u32,
    pub flags: c_int,
}

impl XattrCall {
    /// `getxattr`.
    ///
    /// # Safety
    ///
    /// The strings are valid, and `value` for writes of `len` bytes.
    pub(super) unsafe fn get(&self) -> isize {
        let XattrCall { fd, path, name, value, len, .. } = *self;
        // SAFETY: by the contract.
        unsafe {
            if path.is_null() {
                libc::fgetxattr(fd, name, value.cast(), len as usize)
            } else {
                libc::getxattr(path, name, value.cast(), len as usize)
            }
        }
    }

    /// `setxattr`.
    ///
    /// # Safety
    ///
    /// The strings are valid, and `value` for reads of `len` bytes.
    pub(super) unsafe fn set(&self) -> isize {
        let XattrCall { fd, path, name, value, len, flags } = *self;
        // SAFETY: by the contract.
        let result = unsafe {
            if path.is_null() {
                libc::fsetxattr(fd, name, value.cast(), len as usize, flags)
            } else {
                libc::setxattr(path, name, value.cast(), len as usize, flags)
            }
        };
        result as isize
    }

    /// `listxattr`.
    ///
    /// # Safety
    ///
    /// The path is null or valid, and `value` is valid for writes of `len` bytes.
    unsafe fn list(&self) -> isize {
        let XattrCall { fd, path, value, len, .. } = *self;
        // SAFETY: by the contract.
        unsafe {
            if path.is_null() {
                libc::flistxattr(fd, value.cast(), len as usize)
            } else {
                libc::listxattr(path, value.cast(), len as usize)
            }
        }
    }

    /// `removexattr`.
    ///
    /// # Safety
    ///
    /// The strings are valid.
    unsafe fn remove(&self) -> isize {
        let XattrCall { fd, path, name, .. } = *self;
        // SAFETY: by the contract.
        let result = unsafe {
            if path.is_null() {
                libc::fremovexattr(fd, name)
            } else {
                libc::removexattr(path, name)
            }
        };
        result as isize
    }
}

/// Entries of a directory, as the kernel returns them.
pub struct Entries {
    pub bytes: Box<[u8]>,
    /// The directory has no entries after these.
    pub is_end: bool,
}

impl Entries {
    /// The longest entry: most file systems limit names to 255 bytes, FUSE to 1,024.
    const LONGEST: usize = 1024 + 32;

    /// Reads the next entries. One call rarely returns the last entries and says that they are the
    /// last; the next one does, at little cost for the thread that makes the first.
    fn fill(&mut self, fd: RawFd) -> isize {
        let mut filled = 0;
        loop {
            let room = &mut self.bytes[filled..];
            // SAFETY: the buffer is borrowed exclusively.
            let read = unsafe { syscall!(SYS_getdents64, fd, room.as_mut_ptr(), room.len()) };
            match read {
                1.. => filled += read as usize,
                0 => self.is_end = true,
                // The next call reports the error again, or succeeds.
                _ if filled > 0 => {}
                error => return error,
            }
            if read <= 0 || self.bytes.len() - filled < Self::LONGEST {
                return filled as isize;
            }
        }
    }
}

impl Syscall {
    /// Makes the call. Returns its count, or `-errno`.
    ///
    /// # Safety
    ///
    /// The pointers are valid for the call.
    pub(super) unsafe fn call(self) -> isize {
        // SAFETY: by the contract, each pointer is valid for what the call does with it.
        unsafe {
            match self {
                Syscall::ReadDir { fd, out } => (*out).fill(fd),
                Syscall::Lock { fd, how } => syscall!(SYS_flock, fd, how),
                Syscall::SetWriteLife { fd, life } => {
                    const F_SET_RW_HINT: c_int = 1036;
                    syscall!(SYS_fcntl, fd, F_SET_RW_HINT, life)
                }
                other => match other.call_libc() {
                    -1 => -(errno() as isize),
                    result => result,
                },
            }
        }
    }

    /// Makes a call by a function of libc that no program interposes, because it does not wait.
    /// Returns its count, or −1 with `errno` set.
    ///
    /// # Safety
    ///
    /// The pointers are valid for the call.
    unsafe fn call_libc(self) -> isize {
        // SAFETY: by the contract, each pointer is valid for what the call does with it.
        unsafe {
            match self {
                Syscall::ReadDir { .. } | Syscall::Lock { .. } | Syscall::SetWriteLife { .. } => {
                    unreachable!("a raw call")
                }
                Syscall::ReadLink { dir, path, out } => {
                    libc::readlinkat(dir, path, out.cast(), size_of::<PathBuffer>())
                }
                Syscall::RealPath { path, out } => {
                    let is_error = libc::realpath(path, out.cast()).is_null();
                    if is_error { -1 } else { libc::strlen(out.cast()) as isize }
                }
                Syscall::SetMode { fd, path, mode } if path.is_null() => {
                    libc::fchmod(fd, mode) as isize
                }
                Syscall::SetMode { fd, path, mode } => libc::fchmodat(fd, path, mode, 0) as isize,
                Syscall::SetOwner { dir, path, owner } => {
                    let Owner { user, group, flags } = *owner;
                    libc::fchownat(dir, path, user, group, flags) as isize
                }
                Syscall::SetTimes { fd, path, times } => {
                    let Times { stamps, flags } = &*times;
                    if path.is_null() {
                        libc::futimens(fd, stamps.as_ptr()) as isize
                    } else {
                        libc::utimensat(fd, path, stamps.as_ptr(), *flags) as isize
                    }
                }
                Syscall::CopyRange { from, to, offsets, len } => {
                    let [from_offset, to_offset] = &mut *offsets;
                    libc::copy_file_range(from, from_offset, to, to_offset, len as usize, 0)
                }
                Syscall::Clone { to, range } => libc::ioctl(to, libc::FICLONERANGE, range) as isize,
                Syscall::Discard { fd, range } => {
                    const BLKDISCARD: libc::Ioctl = 0x1277;
                    libc::ioctl(fd, BLKDISCARD, range) as isize
                }
                Syscall::Seek { fd, whence, offset } => match libc::lseek(fd, *offset, whence) {
                    -1 => -1,
                    position => {
                        *offset = position;
                        0
                    }
                },
                Syscall::ListXattrs(call) => (*call).list(),
                Syscall::RemoveXattr(call) => (*call).remove(),
                Syscall::ChangeRoot { path } => libc::chroot(path) as isize,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Entries;
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;

    /// Returns the calls of `fill` that read a directory with this number of files, and its bytes.
    fn fill_all(files: usize) -> (usize, usize) {
        let directory = tempfile::tempdir().unwrap();
        for n in 0..files {
            fs::write(directory.path().join(format!("a file with a long name: {n:07}")), "")
                .unwrap();
        }
        let open = File::open(directory.path()).unwrap();
        let mut entries = Entries { bytes: vec![0; 32 << 10].into(), is_end: false };
        let (mut calls, mut bytes) = (0, 0);
        while !entries.is_end {
            let filled = entries.fill(open.as_raw_fd());
            assert!(filled >= 0, "{filled}");
            (calls, bytes) = (calls + 1, bytes + filled as usize);
        }
        assert_eq!(entries.fill(open.as_raw_fd()), 0);
        (calls, bytes)
    }

    #[test]
    fn a_small_directory_is_read_at_once() {
        // The records of 31 bytes of name, and of `.` and `..`.
        assert_eq!(fill_all(0), (1, 48));
        assert_eq!(fill_all(100), (1, 48 + 100 * 56));
    }

    #[test]
    fn a_large_directory_fills_the_buffer() {
        let (calls, bytes) = fill_all(2000);
        assert_eq!((calls, bytes), (4, 48 + 2000 * 56));
    }

    #[test]
    fn an_error_is_returned() {
        let mut entries = Entries { bytes: vec![0; 32 << 10].into(), is_end: false };
        let file = tempfile::tempfile().unwrap();
        assert_eq!(entries.fill(file.as_raw_fd()), -(libc::ENOTDIR as isize));
        assert!(!entries.is_end);
    }
}
