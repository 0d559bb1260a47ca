//! The system calls of a copy, plain: each on the thread that asks, with names beneath an open
//! directory. (Why plain: see [`engine`](crate::workers).) Nothing here retries or decides, except
//! for `EINTR` and where descriptors are few (see [`descriptors`]).

use crate::descriptors;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub(crate) type Stat = libc::stat;

pub(crate) const CWD: RawFd = libc::AT_FDCWD;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn check_size(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Asks again while a signal interrupts it.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
            answer => return answer,
        }
    }
}

pub(crate) fn c_string(bytes: &[u8]) -> CString {
    // Arguments and directory entries hold no zero byte.
    CString::new(bytes).unwrap_or_default()
}

/// At the limit of descriptors, closes directories that no worker uses and tries again.
pub(crate) fn open_at(dir: RawFd, name: &CStr, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    let open = || {
        // SAFETY: the name ends in a zero byte and outlives the call; the number that comes back is
        // owned by nobody else.
        unsafe {
            let fd = check(libc::openat(dir, name.as_ptr(), flags | libc::O_CLOEXEC, mode))?;
            Ok(OwnedFd::from_raw_fd(fd))
        }
    };
    loop {
        match retry(open) {
            Err(e)
                if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
                    && descriptors::make_room() => {}
            answer => return answer,
        }
    }
}

fn empty_stat() -> Stat {
    // SAFETY: all zeros is a value of this plain struct.
    unsafe { std::mem::zeroed() }
}

pub(crate) fn stat_at(dir: RawFd, name: &CStr, follow: bool) -> io::Result<Stat> {
    let mut stat = empty_stat();
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    // SAFETY: name and result outlive the call.
    check(unsafe { libc::fstatat(dir, name.as_ptr(), &mut stat, flags) })?;
    Ok(stat)
}

pub(crate) fn stat_of(fd: RawFd) -> io::Result<Stat> {
    let mut stat = empty_stat();
    // SAFETY: the result outlives the call.
    check(unsafe { libc::fstat(fd, &mut stat) })?;
    Ok(stat)
}

pub(crate) fn mkdir_at(dir: RawFd, name: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: the name outlives the call.
    check(unsafe { libc::mkdirat(dir, name.as_ptr(), mode) }).map(drop)
}

pub(crate) fn mknod_at(dir: RawFd, name: &CStr, mode: u32, device: u64) -> io::Result<()> {
    // SAFETY: the name outlives the call.
    check(unsafe { libc::mknodat(dir, name.as_ptr(), mode, device) }).map(drop)
}

pub(crate) fn unlink_at(dir: RawFd, name: &CStr) -> io::Result<()> {
    // SAFETY: the name outlives the call.
    check(unsafe { libc::unlinkat(dir, name.as_ptr(), 0) }).map(drop)
}

pub(crate) fn symlink_at(target: &CStr, dir: RawFd, name: &CStr) -> io::Result<()> {
    // SAFETY: both names outlive the call.
    check(unsafe { libc::symlinkat(target.as_ptr(), dir, name.as_ptr()) }).map(drop)
}

pub(crate) fn link_at(
    (from_dir, from): (RawFd, &CStr),
    (to_dir, to): (RawFd, &CStr),
    follow: bool,
) -> io::Result<()> {
    let flags = if follow { libc::AT_SYMLINK_FOLLOW } else { 0 };
    // SAFETY: both names outlive the call.
    check(unsafe { libc::linkat(from_dir, from.as_ptr(), to_dir, to.as_ptr(), flags) }).map(drop)
}

/// A name in an open directory.
pub(crate) type Place<'a> = (RawFd, &'a CStr);

/// Renames within or between directories, also onto what is there.
pub(crate) fn rename_at((from_dir, from): Place<'_>, (to_dir, to): Place<'_>) -> io::Result<()> {
    // SAFETY: both names outlive the call.
    check(unsafe { libc::renameat(from_dir, from.as_ptr(), to_dir, to.as_ptr()) }).map(drop)
}

fn lacks_flag(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP))
}

/// The same, but fails with `EEXIST` where something is there.
pub(crate) fn rename_new((from_dir, from): Place<'_>, (to_dir, to): Place<'_>) -> io::Result<()> {
    let flags = libc::RENAME_NOREPLACE;
    // By its number, as not every C library has a name for it.
    // SAFETY: both names outlive the call.
    let renamed = unsafe {
        libc::syscall(libc::SYS_renameat2, from_dir, from.as_ptr(), to_dir, to.as_ptr(), flags)
    };
    match check(renamed as libc::c_int) {
        // File systems without this flag (NFS, 9p, many of FUSE), and kernels or filters without
        // the call: nobody else is likely to come in between.
        Err(e) if lacks_flag(&e) => match stat_at(to_dir, to, false) {
            Ok(_) => Err(io::Error::from_raw_os_error(libc::EEXIST)),
            Err(_) => rename_at((from_dir, from), (to_dir, to)),
        },
        answer => answer.map(drop),
    }
}

pub(crate) fn read_link_at(dir: RawFd, name: &CStr) -> io::Result<CString> {
    let mut text = vec![0u8; 256];
    loop {
        // SAFETY: the buffer is as long as it is said to be.
        let length = check_size(unsafe {
            libc::readlinkat(dir, name.as_ptr(), text.as_mut_ptr().cast(), text.len())
        })?;
        if length < text.len() {
            text.truncate(length);
            return Ok(c_string(&text));
        }
        text.resize(text.len() * 2, 0);
    }
}

/// The same call by a path, for a descriptor that was opened for lookups alone (`O_PATH`).
fn or_through_proc(
    answer: io::Result<libc::c_int>,
    fd: RawFd,
    call: impl Fn(&CStr) -> libc::c_int,
) -> io::Result<libc::c_int> {
    match answer {
        Err(e) if e.raw_os_error() == Some(libc::EBADF) => {
            check(call(&c_string(format!("/proc/self/fd/{fd}").as_bytes())))
        }
        answer => answer,
    }
}

pub(crate) fn chmod_fd(fd: RawFd, mode: u32) -> io::Result<()> {
    // SAFETY: no pointers.
    let set = check(unsafe { libc::fchmod(fd, mode) });
    // SAFETY: the path outlives the call.
    or_through_proc(set, fd, |path| unsafe { libc::chmod(path.as_ptr(), mode) }).map(drop)
}

/// Not through a symbolic link, should it be one by now: that is an error.
pub(crate) fn chmod_at(dir: RawFd, name: &CStr, mode: u32) -> io::Result<()> {
    // The same on each architecture; since Linux 6.6.
    const FCHMODAT2: libc::c_long = 452;
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the name outlives the call.
    let set = unsafe { libc::syscall(FCHMODAT2, dir, name.as_ptr(), mode, flags) };
    match check(set as i32) {
        // A container's filter may know no such call.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {}
        answer => return answer.map(drop),
    }
    let file = open_at(dir, name, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
    let proc_path = c_string(format!("/proc/self/fd/{}", file.as_raw_fd()).as_bytes());
    // SAFETY: the name outlives the call.
    check(unsafe { libc::chmod(proc_path.as_ptr(), mode) }).map(drop)
}

pub(crate) fn chown_fd(fd: RawFd, uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: no pointers.
    let set = check(unsafe { libc::fchown(fd, uid, gid) });
    // SAFETY: the path outlives the call.
    or_through_proc(set, fd, |path| unsafe { libc::chown(path.as_ptr(), uid, gid) }).map(drop)
}

pub(crate) fn chown_at(dir: RawFd, name: &CStr, uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: the name outlives the call.
    check(unsafe { libc::fchownat(dir, name.as_ptr(), uid, gid, libc::AT_SYMLINK_NOFOLLOW) })
        .map(drop)
}

fn times_of(stat: &Stat) -> [libc::timespec; 2] {
    [
        libc::timespec { tv_sec: stat.st_atime, tv_nsec: stat.st_atime_nsec },
        libc::timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec },
    ]
}

pub(crate) fn set_times_fd(fd: RawFd, stat: &Stat) -> io::Result<()> {
    // SAFETY: two times, as the call wants.
    let set = check(unsafe { libc::futimens(fd, times_of(stat).as_ptr()) });
    let times = times_of(stat);
    // SAFETY: as above; the path outlives the call.
    or_through_proc(set, fd, |path| unsafe {
        libc::utimensat(CWD, path.as_ptr(), times.as_ptr(), 0)
    })
    .map(drop)
}

pub(crate) fn set_times_at(dir: RawFd, name: &CStr, stat: &Stat) -> io::Result<()> {
    let times = times_of(stat);
    // SAFETY: two times, as the call wants; the name outlives the call.
    check(unsafe { libc::utimensat(dir, name.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW) })
        .map(drop)
}

pub(crate) fn truncate(fd: RawFd, length: u64) -> io::Result<()> {
    // SAFETY: no pointers.
    retry(|| check(unsafe { libc::ftruncate(fd, length as i64) }).map(drop))
}

pub(crate) fn read(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is as long as it is said to be.
    retry(|| check_size(unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) }))
}

/// From now on a read waits.
pub(crate) fn make_blocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointers.
    let flags = check(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) }).map(drop)
}

/// Reads from the beginning what is in the page cache; `EAGAIN` where that is nothing.
pub(crate) fn read_cached(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: one part, as long as it is said to be.
    check_size(unsafe { libc::preadv2(fd, &part, 1, 0, libc::RWF_NOWAIT) })
}

/// Has the kernel begin to read a file.
pub(crate) fn start_reading(fd: RawFd, length: u64) {
    // SAFETY: no pointers. It is advice: a failure changes nothing.
    unsafe { libc::posix_fadvise(fd, 0, length as i64, libc::POSIX_FADV_WILLNEED) };
}

pub(crate) fn write_all(fd: RawFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the bytes are as many as is said.
        let n =
            retry(|| check_size(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) }))?;
        if n == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        bytes = &bytes[n..];
    }
    Ok(())
}

/// Where the cursor stands after the seek.
pub(crate) fn seek(fd: RawFd, offset: u64, whence: i32) -> io::Result<u64> {
    // SAFETY: no pointers.
    let at = unsafe { libc::lseek(fd, offset as i64, whence) };
    u64::try_from(at).map_err(|_| io::Error::last_os_error())
}

/// Copies at the cursors of both, within the kernel.
pub(crate) fn copy_range(from: RawFd, to: RawFd, length: usize) -> io::Result<usize> {
    use std::ptr::null_mut;
    // SAFETY: no offsets are given: the kernel uses the cursors.
    retry(|| {
        // SAFETY: no pointers but null ones; the descriptors are the caller's.
        check_size(unsafe { libc::copy_file_range(from, null_mut(), to, null_mut(), length, 0) })
    })
}

/// `FICLONE`: the whole file shares its blocks with the other.
pub(crate) fn clone_file(from: RawFd, to: RawFd) -> io::Result<()> {
    const FICLONE: libc::Ioctl = 0x4004_9409;
    // SAFETY: the argument of this request is a descriptor, not a pointer.
    check(unsafe { libc::ioctl(to, FICLONE, from) }).map(drop)
}

pub(crate) fn sync_fd(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::fsync(fd) }).map(drop)
}

/// All of the file system that this is on; with the errors since the descriptor was opened.
pub(crate) fn sync_file_system(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::syncfs(fd) }).map(drop)
}

/// Whether [`sync_file_system`] makes durable what a fsync of each file would. (FUSE asks its
/// server nothing, others may do nothing: these are known to.)
pub(crate) fn syncfs_is_enough(fd: RawFd) -> bool {
    file_system(fd).is_some_and(|kind| ON_DISKS.contains(&kind))
}

/// Whether the kernel itself keeps the files: their sizes are no claims of a server or a driver.
pub(crate) fn has_exact_sizes(fd: RawFd) -> bool {
    const TMPFS: u32 = libc::TMPFS_MAGIC as u32;
    file_system(fd).is_some_and(|kind| kind == TMPFS || ON_DISKS.contains(&kind))
}

// C libraries differ in the type; the numbers have 32 bits.
const ON_DISKS: [u32; 4] = [
    libc::EXT4_SUPER_MAGIC as u32,
    libc::XFS_SUPER_MAGIC as u32,
    libc::BTRFS_SUPER_MAGIC as u32,
    0xf2f5_2010, // F2FS
];

/// Whether the file is on a FAT, whose times are even seconds.
pub(crate) fn is_fat(dir: RawFd, name: &CStr) -> bool {
    open_at(dir, name, libc::O_PATH, 0)
        .is_ok_and(|file| file_system(file.as_raw_fd()) == Some(libc::MSDOS_SUPER_MAGIC as u32))
}

/// The number by which Linux knows the kind of a file system.
fn file_system(fd: RawFd) -> Option<u32> {
    // SAFETY: a record of integers, for which zeros are a value.
    let mut of: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the record outlives the call.
    check(unsafe { libc::fstatfs(fd, &mut of) }).ok()?;
    Some(of.f_type as u32)
}

/// What the whole machine has yet to write to its disks.
pub(crate) fn dirty_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Dirty:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

pub(crate) fn sync_data(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::fdatasync(fd) }).map(drop)
}

/// Has the kernel let go of the file's clean pages, so that the next read asks the disk.
pub(crate) fn drop_cache(fd: RawFd) {
    // SAFETY: no pointers; a hint that may fail.
    unsafe { libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// Closes it in any case. After an error, `EINTR` as well, what was written may be lost.
pub(crate) fn close(fd: OwnedFd) -> io::Result<()> {
    use std::os::fd::IntoRawFd;
    // SAFETY: the number was owned, and is given up here.
    check(unsafe { libc::close(fd.into_raw_fd()) }).map(drop)
}

/// Whether something is mounted on this name. False before Linux 5.8, which does not say.
pub(crate) fn is_mount_root(dir: RawFd, name: &CStr) -> bool {
    has_attribute(dir, name, libc::AT_SYMLINK_NOFOLLOW, libc::STATX_ATTR_MOUNT_ROOT as u64)
}

/// Whether the directory keeps each name that it has (`chattr +a`). An empty name: `dir` itself.
pub(crate) fn is_append_only(dir: RawFd, name: &CStr) -> bool {
    has_attribute(dir, name, libc::AT_EMPTY_PATH, libc::STATX_ATTR_APPEND as u64)
}

fn has_attribute(dir: RawFd, name: &CStr, flags: i32, attribute: u64) -> bool {
    let flags = flags | libc::AT_STATX_DONT_SYNC;
    // SAFETY: a record of integers, for which zeros are a value.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // By its number, as not every C library has it.
    // SAFETY: name and record outlive the call.
    let asked =
        unsafe { libc::syscall(libc::SYS_statx, dir, name.as_ptr(), flags, 0_u32, &raw mut found) };
    asked == 0 && found.stx_attributes & attribute != 0
}

/// The flags that `chattr` and `xfs_io` set, project and extent sizes; `None` where there are none.
pub(crate) fn flags_of(fd: RawFd) -> (Option<u32>, Option<[u32; 4]>) {
    #[repr(C)]
    #[derive(Default)]
    struct FsXattr {
        flags: u32,
        extent_size: u32,
        extents: u32,
        project: u32,
        cow_extent_size: u32,
        reserved: [u8; 8],
    }
    const GET_FLAGS: libc::Ioctl = 0x8008_6601_u32 as libc::Ioctl;
    const GET_MORE: libc::Ioctl = 0x801c_581f_u32 as libc::Ioctl;
    /// Not how it is stored (extents, inline, indexed, verity, encrypted).
    const SET_BY_USERS: u32 = 0x2283_c4ff;
    const PREALLOCATED_OR_HAS_ATTRIBUTES: u32 = 0x8000_0002;
    let (mut flags, mut more) = (0_u32, FsXattr::default());
    // SAFETY: the kernel writes an `int`, whatever the number of this request says; it outlives the
    // call.
    let has_flags = unsafe { libc::ioctl(fd, GET_FLAGS, &raw mut flags) } == 0;
    // SAFETY: the record is as the request wants it and outlives the call.
    let has_more = unsafe { libc::ioctl(fd, GET_MORE, &raw mut more) } == 0;
    let kept = more.flags & !PREALLOCATED_OR_HAS_ATTRIBUTES;
    let more = has_more.then_some([kept, more.extent_size, more.project, more.cow_extent_size]);
    (has_flags.then_some(flags & SET_BY_USERS), more)
}

/// Returns the process's umask, from `/proc` where that is mounted: the call can only read it by
/// changing it for a moment, in which another thread may make a file.
pub(crate) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    if let Some(mask) = line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()) {
        return mask;
    }
    // SAFETY: the call takes no pointers; the mask is restored.
    unsafe {
        let mask = libc::umask(0);
        libc::umask(mask);
        mask
    }
}

pub(crate) fn effective_user() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

pub(crate) fn writable_at(dir: RawFd, name: &CStr) -> bool {
    // SAFETY: the name outlives the call.
    unsafe { libc::faccessat(dir, name.as_ptr(), libc::W_OK, libc::AT_EACCESS) == 0 }
}

pub(crate) fn accessible(dir: RawFd, name: &CStr, how: i32) -> bool {
    // SAFETY: the name outlives the call.
    unsafe { libc::faccessat(dir, name.as_ptr(), how, libc::AT_EACCESS) == 0 }
}

/// The names of the extended attributes, each ended by a zero byte.
pub(crate) fn list_xattrs(fd: RawFd) -> io::Result<Vec<u8>> {
    // SAFETY: a length of zero asks for the size; then the buffer is as long as is said.
    read_growing(|at, length| unsafe { libc::flistxattr(fd, at.cast(), length) })
}

pub(crate) fn get_xattr(fd: RawFd, name: &CStr) -> io::Result<Vec<u8>> {
    // SAFETY: as above; the name outlives the call.
    read_growing(|at, length| unsafe { libc::fgetxattr(fd, name.as_ptr(), at.cast(), length) })
}

/// Asks for the size, then for the value; again if it has grown in between.
fn read_growing(call: impl Fn(*mut u8, usize) -> isize) -> io::Result<Vec<u8>> {
    loop {
        let size = check_size(call(std::ptr::null_mut(), 0))?;
        if size == 0 {
            return Ok(Vec::new());
        }
        let mut value = vec![0u8; size];
        match check_size(call(value.as_mut_ptr(), size)) {
            Ok(length) => {
                value.truncate(length);
                return Ok(value);
            }
            Err(e) if e.raw_os_error() == Some(libc::ERANGE) => {}
            Err(e) => return Err(e),
        }
    }
}

pub(crate) fn set_xattr(fd: RawFd, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: name and value outlive the call.
    let set =
        check(unsafe { libc::fsetxattr(fd, name.as_ptr(), value.as_ptr().cast(), value.len(), 0) });
    // SAFETY: as above; the path outlives the call.
    or_through_proc(set, fd, |path| unsafe {
        libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    })
    .map(drop)
}

/// It is well where there is none.
fn ignore_absent(result: io::Result<i32>) -> io::Result<()> {
    match result {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENODATA | libc::EOPNOTSUPP)) => Ok(()),
        answer => answer.map(drop),
    }
}

pub(crate) fn remove_xattr(fd: RawFd, name: &CStr) -> io::Result<()> {
    // SAFETY: the name outlives the call.
    let removed = check(unsafe { libc::fremovexattr(fd, name.as_ptr()) });
    // SAFETY: path and name outlive the call.
    ignore_absent(or_through_proc(removed, fd, |path| unsafe {
        libc::removexattr(path.as_ptr(), name.as_ptr())
    }))
}

pub(crate) fn lremove_xattr(path: &CStr, name: &CStr) -> io::Result<()> {
    // SAFETY: path and name outlive the call.
    ignore_absent(check(unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) }))
}

pub(crate) fn lset_xattr(path: &CStr, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: path, name and value outlive the call.
    check(unsafe {
        libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    })
    .map(drop)
}

pub(crate) fn lget_xattr(path: &CStr, name: &CStr) -> io::Result<Vec<u8>> {
    // SAFETY: path and name outlive the call.
    read_growing(|at, length| unsafe {
        libc::lgetxattr(path.as_ptr(), name.as_ptr(), at.cast(), length)
    })
}

pub(crate) fn llist_xattrs(path: &CStr) -> io::Result<Vec<u8>> {
    // SAFETY: the path outlives the call.
    read_growing(|at, length| unsafe { libc::llistxattr(path.as_ptr(), at.cast(), length) })
}

/// Reads records of a directory (`linux_dirent64`), from where the handle stands; 0 at the end.
pub(crate) fn read_dir(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    retry(|| {
        // SAFETY: the buffer is as long as it is said to be.
        check_size(unsafe {
            libc::syscall(libc::SYS_getdents64, fd, buffer.as_mut_ptr(), buffer.len()) as isize
        })
    })
}

/// How many descriptors this process has open; `None` where `/proc` is not mounted.
pub(crate) fn open_descriptors() -> Option<usize> {
    std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count)
}

/// Raises the soft limit on descriptors towards `wanted`; returns what it is then.
pub(crate) fn allow_descriptors(wanted: usize) -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the record outlives the call.
    if check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }).is_err() {
        return wanted;
    }
    let before = limit.rlim_cur;
    limit.rlim_cur = before.max((wanted as u64).min(limit.rlim_max));
    // SAFETY: the record outlives the call.
    if limit.rlim_cur > before && unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
        limit.rlim_cur = before;
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

pub(crate) fn kind(stat: &Stat) -> u32 {
    stat.st_mode & libc::S_IFMT
}

pub(crate) fn id(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Moves the cursor.
pub(crate) fn seek_by(fd: RawFd, bytes: i64) -> io::Result<()> {
    // SAFETY: no pointers.
    if unsafe { libc::lseek(fd, bytes, libc::SEEK_CUR) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn chmod_does_not_follow_links() {
        let place = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        let (file, link) = (place.path().join("file"), place.path().join("link"));
        let mode = || std::fs::metadata(&file).map(|found| found.permissions().mode() & 0o7777);
        std::fs::write(&file, "").unwrap_or_else(|e| panic!("{e}"));
        symlink(&file, &link).unwrap_or_else(|e| panic!("{e}"));
        let set = |path: &std::path::Path, mode| {
            chmod_at(CWD, &c_string(path.as_os_str().as_bytes()), mode)
        };
        assert!(set(&file, 0o640).is_ok());
        assert!(set(&link, 0o777).is_err());
        assert_eq!(mode().ok(), Some(0o640));
    }
}
