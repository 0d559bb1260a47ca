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
//!
//! The worker asks no server. File systems on disks and in memory describe a file's attributes in
//! its `statx`, and file systems of servers do not; these are asked for their kind where the file
//! is closed, on a thread of the pool. The answer is kept for the device: for a second or two,
//! because the next file system that is mounted gets the device's number.

use super::file_kind::DESCRIBED;
use super::raw::result_of;
use super::{coarse_ns, status_flags, statx, syscall};
use std::ffi::c_int;
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// The anonymous files whose close does not wait.
const QUICK: [&[u8]; 6] = [
    b"anon_inode:[eventfd]",
    b"anon_inode:[eventpoll]",
    b"anon_inode:[io_uring]",
    b"anon_inode:[pidfd]",
    b"anon_inode:[signalfd]",
    b"anon_inode:[timerfd]",
];

/// The kinds of file systems whose files have not [`DESCRIBED`] attributes.
mod kind {
    pub(super) const LOCAL: u64 = 1;
    /// See [`has_triggers`](super::FileSystem::has_triggers).
    pub(super) const WITH_TRIGGERS: u64 = 2;
    pub(super) const OF_A_SERVER: u64 = 3;
    pub(super) const MASK: u64 = 3;
}

/// What is known of devices: the device, the second, and the kind. Devices that share a place
/// replace each other.
static KNOWN: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Whether `close` of this descriptor may wait.
pub fn close_waits(fd: RawFd) -> bool {
    let Some(stat) = own_stat(fd) else { return false };
    match u32::from(stat.stx_mode) & libc::S_IFMT {
        libc::S_IFSOCK => option(fd, libc::SO_DOMAIN) == libc::AF_PACKET || lingers(fd),
        libc::S_IFREG if stat.stx_nlink == 0 && stat.stx_blocks > 0 => true,
        libc::S_IFREG => match is_described(&stat).then_some(kind::LOCAL).or(known(&stat)) {
            Some(kind::LOCAL) => false,
            Some(kind::WITH_TRIGGERS) => status_flags(fd) & libc::O_ACCMODE != libc::O_RDONLY,
            _ => true,
        },
        // Memory devices, as `/dev/null` and `/dev/urandom`, have the number 1.
        libc::S_IFCHR => stat.stx_rdev_major != 1,
        libc::S_IFBLK => true,
        0 => !is_quick(fd),
        _ => false,
    }
}

/// Closes a file for which [`close_waits`], on a thread that may wait.
pub fn close_slowly(fd: RawFd) -> io::Result<()> {
    ask(fd);
    // SAFETY: no pointers. The caller gives the descriptor up.
    result_of(unsafe { syscall!(SYS_close, fd) }).map(drop)
}

/// What this machine knows of the file.
fn own_stat(fd: RawFd) -> Option<libc::statx> {
    const AT_STATX_DONT_SYNC: c_int = 0x4000;
    let flags = libc::AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
    let mask = libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_NLINK | libc::STATX_BLOCKS;
    let mut out = std::mem::MaybeUninit::<libc::statx>::zeroed();
    statx(fd, c"", flags, mask, &mut out).ok()?;
    // SAFETY: an all-zero structure is valid, and the call has filled it.
    Some(unsafe { out.assume_init() })
}

fn is_described(stat: &libc::statx) -> bool {
    stat.stx_attributes_mask & DESCRIBED != 0
}

/// The kernel's numbers have 12 and 20 bits.
fn device(stat: &libc::statx) -> u64 {
    u64::from(stat.stx_dev_major) << 20 | u64::from(stat.stx_dev_minor)
}

/// Seconds, nearly, of which 30 bits are used.
fn second() -> u64 {
    coarse_ns() >> 30
}

/// Returns the kind of a device that was asked not long ago.
fn known(stat: &libc::statx) -> Option<u64> {
    let device = device(stat);
    let word = KNOWN[device as usize % KNOWN.len()].load(Ordering::Relaxed);
    kind_in(word, device, second())
}

fn word_of(device: u64, second: u64, kind: u64) -> u64 {
    device << 32 | second << 2 | kind
}

/// The kind of a server remains: a thread closes its files in any case.
fn kind_in(word: u64, device: u64, now: u64) -> Option<u64> {
    let (since, kind) = ((word >> 2) % (1 << 30), word & kind::MASK);
    let is_recent = kind == kind::OF_A_SERVER || now.wrapping_sub(since) < 2;
    (word >> 32 == device && kind != 0 && is_recent).then_some(kind)
}

/// Asks for the kind of a file's device, if it is not known. May wait for a server.
fn ask(fd: RawFd) {
    let is_unknown = |stat: &libc::statx| {
        u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFREG
            && !is_described(stat)
            && known(stat).is_none()
    };
    let Some(stat) = own_stat(fd).filter(is_unknown) else { return };
    let system = file_system(fd);
    let kind = match system.kind {
        // No answer.
        0 => return,
        _ if system.waits_for_server(0) => kind::OF_A_SERVER,
        _ if system.has_triggers() => kind::WITH_TRIGGERS,
        _ => kind::LOCAL,
    };
    let device = device(&stat);
    let word = word_of(device, second(), kind);
    KNOWN[device as usize % KNOWN.len()].store(word, Ordering::Relaxed);
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
pub struct FileSystem {
    kind: u64,
    sizes: [u64; 9],
    flags: u64,
    spare: [u64; 4],
}

/// Returns what `fstatfs` reports.
pub fn file_system(fd: RawFd) -> FileSystem {
    const { assert!(size_of::<FileSystem>() == size_of::<libc::statfs>()) };
    let mut out = FileSystem { kind: 0, sizes: [0; 9], flags: 0, spare: [0; 4] };
    // SAFETY: the structure is borrowed for the call, and has the size of libc's.
    unsafe { syscall!(SYS_fstatfs, fd, &raw mut out) };
    out
}

impl FileSystem {
    /// Whether a server provides the file system, or it is mounted with one of these flags.
    pub fn waits_for_server(&self, flags: u64) -> bool {
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

    /// Whether the close of a file waits when its file system is known. That lasts for a second.
    fn waits_when_known(file: &File) -> bool {
        (0..100).all(|_| {
            ask(file.as_raw_fd());
            waits(file)
        })
    }

    #[test]
    fn kind_of_a_device_is_known_for_a_moment() {
        let (device, other) = (7 << 20 | 3, 7 << 20 | 67);
        let known = |kind, age: u64| kind_in(word_of(device, 1000, kind), device, 1000 + age);
        for kind in [kind::LOCAL, kind::WITH_TRIGGERS] {
            assert_eq!([0, 1, 2].map(|age| known(kind, age)), [Some(kind), Some(kind), None]);
        }
        assert_eq!(known(kind::OF_A_SERVER, 1 << 20), Some(kind::OF_A_SERVER));
        assert_eq!(kind_in(word_of(device, 1000, kind::LOCAL), other, 1000), None);
        assert_eq!((kind_in(0, 0, 0), kind_in(0, device, 0)), (None, None));
    }

    #[test]
    fn undescribed_file_is_quick_once_its_kind_is_known() {
        let stat = File::open("/proc/self/stat").unwrap();
        assert!(!is_described(&own_stat(stat.as_raw_fd()).unwrap()));
        assert!(!waits_when_known(&stat));
        let (reader, _writer) = std::io::pipe().unwrap();
        ask(reader.as_raw_fd());
        ask(-1);
    }

    #[test]
    fn quick_kinds_are_closed_in_place() {
        let (reader, writer) = std::io::pipe().unwrap();
        assert!(!waits(reader) && !waits(writer));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!waits(listener));
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        for (linger, waits_then) in [(None, false), (Some(0), false), (Some(1), true)] {
            let time = linger.map(std::time::Duration::from_secs);
            socket2::SockRef::from(&socket).set_linger(time).unwrap();
            assert_eq!(waits(&socket), waits_then, "SO_LINGER {linger:?}");
        }
        for path in ["/", "/proc/self/exe", "/dev/null", "/dev/urandom"] {
            assert!(!waits_when_known(&File::open(path).unwrap()), "{path}");
        }
        // SAFETY: no pointers are passed.
        unsafe {
            assert!(!waits(opened(libc::epoll_create1(0)).unwrap()));
            assert!(!waits(opened(libc::eventfd(0, 0)).unwrap()));
            assert!(!waits(opened(libc::timerfd_create(libc::CLOCK_MONOTONIC, 0)).unwrap()));
        }
    }
}
