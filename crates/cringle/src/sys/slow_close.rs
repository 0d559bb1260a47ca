//! Whether `close` may wait, by the kind of the file.
//!
//! 90 kinds of files were closed 40 times each on Linux 6.18, and the voluntary switches of the
//! thread were counted. These wait:
//!
//! | kind | for | measured |
//! |---|---|---|
//! | an inotify or fanotify with marks | other readers of the marks (SRCU) | 8 to 24 ms |
//! | a packet socket, a tun device | packets on their way (RCU) | 16 to 120 ms |
//! | a pressure trigger of `/proc` or of a control group | its thread | 20 ms |
//! | a socket that lingers | its peer | as long as `SO_LINGER` says |
//! | an unlinked file with blocks | the file system's journal | 0.1 to 45 ms |
//! | a file of a server, a block device, a terminal | the server, the device | any time |
//!
//! Other devices and other anonymous files of the kernel are taken for slow ones. Directories,
//! pipes, other sockets, and the anonymous files that are named here do not wait.

use super::{fstat, status_flags, syscall};
use std::ffi::c_int;
use std::io::Write;
use std::os::fd::RawFd;

/// The anonymous files whose close does not wait.
const QUICK: [&[u8]; 6] = [
    b"anon_inode:[eventfd]",
    b"anon_inode:[eventpoll]",
    b"anon_inode:[io_uring]",
    b"anon_inode:[pidfd]",
    b"anon_inode:[signalfd]",
    b"anon_inode:[timerfd]",
];

pub(crate) fn close_waits(fd: RawFd) -> bool {
    let Some(stat) = fstat(fd) else { return false };
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFSOCK => option(fd, libc::SO_DOMAIN) == libc::AF_PACKET || lingers(fd),
        libc::S_IFREG => {
            let system = file_system(fd);
            system.waits_for_server(0)
                || stat.st_nlink == 0 && stat.st_blocks > 0
                || system.has_triggers() && status_flags(fd) & libc::O_ACCMODE != libc::O_RDONLY
        }
        // Memory devices, as `/dev/null` and `/dev/urandom`, have the number 1.
        libc::S_IFCHR => libc::major(stat.st_rdev) != 1,
        libc::S_IFBLK => true,
        0 => !is_quick(fd),
        _ => false,
    }
}

/// Reads what `/proc` calls the file. Allocates nothing.
fn is_quick(fd: RawFd) -> bool {
    let (mut path, mut name) = ([0; 32], [0; 32]);
    if write!(&mut path[..31], "/proc/self/fd/{fd}").is_err() {
        return false;
    }
    let (path, out) = (path.as_ptr(), name.as_mut_ptr());
    // SAFETY: the path ends with a NUL, and both arrays are borrowed for the call.
    let len = unsafe { syscall!(SYS_readlinkat, libc::AT_FDCWD, path, out, name.len()) };
    usize::try_from(len).is_ok_and(|len| QUICK.contains(&&name[..len]))
}

fn option(fd: RawFd, option: c_int) -> c_int {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the variables are borrowed for the call.
    unsafe {
        syscall!(SYS_getsockopt, fd, libc::SOL_SOCKET, option, &raw mut value, &raw mut len);
    }
    value
}

fn lingers(fd: RawFd) -> bool {
    let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut len = size_of::<libc::linger>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_LINGER);
    // SAFETY: the variables are borrowed for the call.
    unsafe { syscall!(SYS_getsockopt, fd, level, option, &raw mut linger, &raw mut len) };
    linger.l_onoff != 0 && linger.l_linger > 0
}

/// The kernel's `struct statfs` of 64-bit machines, of which `libc` lacks the flags.
#[repr(C)]
pub(crate) struct FileSystem {
    kind: u64,
    sizes: [u64; 9],
    flags: u64,
    spare: [u64; 4],
}

pub(crate) fn file_system(fd: RawFd) -> FileSystem {
    const { assert!(size_of::<FileSystem>() == size_of::<libc::statfs>()) };
    let mut out = FileSystem { kind: 0, sizes: [0; 9], flags: 0, spare: [0; 4] };
    // SAFETY: the structure is borrowed for the call, and has the size of libc's.
    unsafe { syscall!(SYS_fstatfs, fd, &raw mut out) };
    out
}

impl FileSystem {
    /// Whether the file system is that of a server, or is mounted with one of these flags.
    pub(crate) fn waits_for_server(&self, flags: u64) -> bool {
        /// 9P, AFS, Ceph, CIFS (two numbers), FUSE, NFS, SMB.
        const MAGICS: [u32; 8] = [
            0x0102_1997,
            0x5346_414f,
            0x00c3_6400,
            0xff53_4d42,
            0xfe53_4d42,
            0x6573_5546,
            0x6969,
            0x517b,
        ];
        MAGICS.contains(&(self.kind as u32)) || self.flags & flags != 0
    }

    /// Whether a file opened for writing may be a trigger of the kernel's: `/proc/pressure`, a
    /// control group of version 2.
    fn has_triggers(&self) -> bool {
        matches!(self.kind as u32, 0x9fa0 | 0x6367_7270)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

    fn waits(file: impl AsFd) -> bool {
        close_waits(file.as_fd().as_raw_fd())
    }

    /// `None` where this process may not have such a file.
    fn opened(fd: c_int) -> Option<OwnedFd> {
        // SAFETY: the contract of `from_raw_fd`: it was just opened, and has no other owner.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    #[test]
    fn slow_kinds_are_known_by_their_file() {
        let unlinked = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&unlinked, &[1; 9000], 0).unwrap();
        unlinked.sync_all().unwrap();
        assert!(waits(&unlinked) && waits(File::open("/dev/ptmx").unwrap()));
        // SAFETY: no pointers are passed; and the path is a C string.
        unsafe {
            let inotify = opened(libc::inotify_init1(0)).unwrap();
            libc::inotify_add_watch(inotify.as_raw_fd(), c"/".as_ptr(), libc::IN_CREATE);
            assert!(waits(inotify));
            // Only root may have these.
            assert!(opened(libc::fanotify_init(0, 0)).is_none_or(waits));
            let packet = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
            assert!(opened(packet).is_none_or(waits));
        }
        let pressure = File::options().write(true).open("/proc/pressure/cpu");
        assert!(pressure.is_ok_and(waits) || !std::path::Path::new("/proc/pressure/cpu").exists());
    }

    #[test]
    fn quick_kinds_are_closed_in_place() {
        let (reader, writer) = std::io::pipe().unwrap();
        assert!(!waits(reader) && !waits(writer));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!waits(listener));
        for path in ["/", "/proc/self/exe", "/proc/self/stat", "/dev/null", "/dev/urandom"] {
            assert!(!waits(File::open(path).unwrap()), "{path}");
        }
        // SAFETY: no pointers are passed.
        unsafe {
            assert!(!waits(opened(libc::epoll_create1(0)).unwrap()));
            assert!(!waits(opened(libc::eventfd(0, 0)).unwrap()));
            assert!(!waits(opened(libc::timerfd_create(libc::CLOCK_MONOTONIC, 0)).unwrap()));
        }
    }
}
