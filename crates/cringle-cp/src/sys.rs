//! The system calls of a copy: plain calls of the calling thread, with names relative to open
//! directories.
//!
//! `rustix` makes the calls; `libc` has the constants, and the calls that `rustix` lacks. Nothing
//! here retries or decides, except after `EINTR` and when descriptors run out (see
//! [`descriptors`]).

mod credentials;
mod status;
mod uncached;
mod xattr;

use crate::descriptors;
use rlimit::Resource;
use rustix::fs::{self, Advice, AtFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom};
use rustix::fs::{StatxAttributes, StatxFlags, Timespec, Timestamps};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, retry_on_intr};
use rustix::ioctl::{Getter, ioctl, opcode};
use rustix::process::{Gid, Uid};
use std::ffi::{CStr, CString};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

pub(crate) use credentials::*;
pub(crate) use rustix::fs::{CWD, Stat, Statx};
pub(crate) use status::*;
pub(crate) use uncached::*;
pub(crate) use xattr::*;

/// A name in an open directory.
pub(crate) type Place<'a> = (BorrowedFd<'a>, &'a CStr);

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Arguments and directory entries have no zero byte within.
pub(crate) fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).unwrap_or_default()
}

/// Returns the path through which the kernel finds an open file.
pub(crate) fn proc_path(fd: BorrowedFd<'_>) -> CString {
    c_string(format!("/proc/self/fd/{}", fd.as_raw_fd()).as_bytes())
}

/// Opens a file. At the limit of descriptors, closes directories that no worker uses and tries
/// again.
pub(crate) fn open_at(
    dir: BorrowedFd<'_>,
    name: &CStr,
    flags: i32,
    mode: u32,
) -> io::Result<OwnedFd> {
    let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC;
    loop {
        match retry_on_intr(|| fs::openat(dir, name, flags, Mode::from_raw_mode(mode))) {
            Err(Errno::MFILE | Errno::NFILE) if descriptors::make_room() => {}
            result => return Ok(result?),
        }
    }
}

pub(crate) fn mkdir_at(dir: BorrowedFd<'_>, name: &CStr, mode: u32) -> io::Result<()> {
    Ok(fs::mkdirat(dir, name, Mode::from_raw_mode(mode))?)
}

pub(crate) fn mknod_at(dir: BorrowedFd<'_>, name: &CStr, mode: u32, device: u64) -> io::Result<()> {
    let (kind, mode) = (FileType::from_raw_mode(mode), Mode::from_raw_mode(mode));
    Ok(fs::mknodat(dir, name, kind, mode, device)?)
}

pub(crate) fn unlink_at(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    Ok(fs::unlinkat(dir, name, AtFlags::empty())?)
}

pub(crate) fn symlink_at(target: &CStr, dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    Ok(fs::symlinkat(target, dir, name)?)
}

pub(crate) fn link_at(
    (from_dir, from): Place<'_>,
    (to_dir, to): Place<'_>,
    follow: bool,
) -> io::Result<()> {
    let flags = if follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
    Ok(fs::linkat(from_dir, from, to_dir, to, flags)?)
}

/// Renames within or between directories, and replaces an existing target.
pub(crate) fn rename_at((from_dir, from): Place<'_>, (to_dir, to): Place<'_>) -> io::Result<()> {
    Ok(fs::renameat(from_dir, from, to_dir, to)?)
}

/// Renames, but fails with `EEXIST` if the target exists.
pub(crate) fn rename_new((from_dir, from): Place<'_>, (to_dir, to): Place<'_>) -> io::Result<()> {
    match fs::renameat_with(from_dir, from, to_dir, to, RenameFlags::NOREPLACE) {
        // File systems without the flag (NFS, 9p, many of FUSE), and kernels or filters without the
        // call. Between these two calls another process could create the target.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match stat_at(to_dir, to, false) {
            Ok(_) => Err(Errno::EXIST.into()),
            Err(_) => rename_at((from_dir, from), (to_dir, to)),
        },
        result => Ok(result?),
    }
}

pub(crate) fn read_link_at(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<CString> {
    Ok(fs::readlinkat(dir, name, Vec::new())?)
}

/// Repeats a call through a path if the descriptor was opened for lookups only (`O_PATH`).
fn or_through_proc<T>(
    result: rustix::io::Result<T>,
    fd: BorrowedFd<'_>,
    call: impl Fn(&CStr) -> rustix::io::Result<T>,
) -> io::Result<T> {
    match result {
        Err(Errno::BADF) => Ok(call(&proc_path(fd))?),
        result => Ok(result?),
    }
}

pub(crate) fn chmod_fd(fd: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    let mode = Mode::from_raw_mode(mode);
    or_through_proc(fs::fchmod(fd, mode), fd, |path| fs::chmod(path, mode))
}

/// Sets the mode of a name; fails if it is a symbolic link.
///
/// The call is a raw one: `rustix` (like `fchmodat` before Linux 6.6) has no flag against following
/// links.
pub(crate) fn chmod_at(dir: BorrowedFd<'_>, name: &CStr, mode: u32) -> io::Result<()> {
    /// The number is the same on every architecture.
    const FCHMODAT2: libc::c_long = 452;
    let (fd, flags) = (dir.as_raw_fd(), libc::AT_SYMLINK_NOFOLLOW);
    // SAFETY: `name` ends in a zero byte and outlives the call.
    match check(unsafe { libc::syscall(FCHMODAT2, fd, name.as_ptr(), mode, flags) }) {
        // The kernel is older, or a container's filter rejects the call.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {}
        result => return result.map(drop),
    }
    let file = open_at(dir, name, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
    Ok(fs::chmod(&*proc_path(file.as_fd()), Mode::from_raw_mode(mode))?)
}

/// Converts an owner or group; `u32::MAX` leaves it unchanged.
fn ids(uid: u32, gid: u32) -> (Option<Uid>, Option<Gid>) {
    let set = |id: u32| (id != u32::MAX).then_some(id);
    (set(uid).map(Uid::from_raw), set(gid).map(Gid::from_raw))
}

pub(crate) fn chown_fd(fd: BorrowedFd<'_>, uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = ids(uid, gid);
    or_through_proc(fs::fchown(fd, uid, gid), fd, |path| fs::chown(path, uid, gid))
}

pub(crate) fn chown_at(dir: BorrowedFd<'_>, name: &CStr, uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = ids(uid, gid);
    Ok(fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn times_of(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: stat.st_atime, tv_nsec: stat.st_atime_nsec as _ },
        last_modification: Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ },
    }
}

pub(crate) fn set_times_fd(fd: BorrowedFd<'_>, stat: &Stat) -> io::Result<()> {
    let times = times_of(stat);
    or_through_proc(fs::futimens(fd, &times), fd, |path| {
        fs::utimensat(CWD, path, &times, AtFlags::empty())
    })
}

/// A directory to which names are relative: the current one, unless another is given.
pub(crate) fn or_cwd(dir: &Option<impl AsFd>) -> BorrowedFd<'_> {
    dir.as_ref().map_or(CWD, AsFd::as_fd)
}

/// Sets the times of the file that the name leads to, to now.
pub(crate) fn set_times_to_now(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    Ok(fs::utimensat(dir, name, &times, AtFlags::empty())?)
}

pub(crate) fn set_times_at(dir: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> io::Result<()> {
    Ok(fs::utimensat(dir, name, &times_of(stat), AtFlags::SYMLINK_NOFOLLOW)?)
}

pub(crate) fn truncate(fd: BorrowedFd<'_>, length: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| fs::ftruncate(fd, length))?)
}

pub(crate) fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::read(fd, &mut *buffer))?)
}

/// Clears `O_NONBLOCK`.
pub(crate) fn make_blocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fs::fcntl_setfl(fd, fs::fcntl_getfl(fd)? - OFlags::NONBLOCK)?)
}

/// Reads from the beginning as much as is in the page cache; `EAGAIN` if that is nothing.
pub(crate) fn read_cached(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let mut parts = [IoSliceMut::new(buffer)];
    Ok(rustix::io::preadv2(fd, &mut parts, 0, ReadWriteFlags::NOWAIT)?)
}

/// Starts to read a file into the page cache. This is advice: a failure has no effect.
pub(crate) fn start_reading(fd: BorrowedFd<'_>, length: u64) {
    let _ = fs::fadvise(fd, 0, NonZeroU64::new(length), Advice::WillNeed);
}

/// Drops the file's clean pages, so that the next read reads the disk. This is advice, too.
pub(crate) fn drop_cache(fd: BorrowedFd<'_>) {
    let _ = fs::fadvise(fd, 0, None, Advice::DontNeed);
}

pub(crate) fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match retry_on_intr(|| rustix::io::write(fd, bytes))? {
            0 => return Err(Errno::NOSPC.into()),
            n => bytes = &bytes[n..],
        }
    }
    Ok(())
}

/// Moves the cursor to an offset.
pub(crate) fn seek(fd: BorrowedFd<'_>, offset: u64) -> io::Result<u64> {
    Ok(fs::seek(fd, SeekFrom::Start(offset))?)
}

/// Moves the cursor to the next data; `ENXIO` if only a hole follows.
pub(crate) fn seek_data(fd: BorrowedFd<'_>, offset: u64) -> io::Result<u64> {
    Ok(fs::seek(fd, SeekFrom::Data(offset))?)
}

/// Moves the cursor to the next hole, which may be the end of the file.
pub(crate) fn seek_hole(fd: BorrowedFd<'_>, offset: u64) -> io::Result<u64> {
    Ok(fs::seek(fd, SeekFrom::Hole(offset))?)
}

/// Moves the cursor forwards.
pub(crate) fn skip(fd: BorrowedFd<'_>, bytes: i64) -> io::Result<()> {
    fs::seek(fd, SeekFrom::Current(bytes))?;
    Ok(())
}

/// Copies within the kernel, from cursor to cursor.
pub(crate) fn copy_range(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    length: usize,
) -> io::Result<usize> {
    Ok(retry_on_intr(|| fs::copy_file_range(from, None, to, None, length))?)
}

/// Makes the whole file share the blocks of the other (`FICLONE`).
pub(crate) fn clone_file(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fs::ioctl_ficlone(to, from)?)
}

pub(crate) fn sync_fd(fd: impl AsFd) -> io::Result<()> {
    Ok(fs::fsync(fd)?)
}

pub(crate) fn sync_data(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fs::fdatasync(fd)?)
}

/// Syncs the whole file system. Returns errors that happened since the descriptor was opened.
pub(crate) fn sync_file_system(fd: impl AsFd) -> io::Result<()> {
    Ok(fs::syncfs(fd)?)
}

/// Returns whether [`sync_file_system`] makes durable what an fsync of each file would. (FUSE does
/// not ask its server, and other file systems may do nothing.)
pub(crate) fn syncfs_is_enough(fd: BorrowedFd<'_>) -> bool {
    file_system(fd).is_some_and(|kind| ON_DISKS.contains(&kind))
}

/// Returns whether the kernel itself stores the files, so that no server or driver invents their
/// sizes.
pub(crate) fn has_exact_sizes(fd: BorrowedFd<'_>) -> bool {
    const TMPFS: u32 = libc::TMPFS_MAGIC as u32;
    file_system(fd).is_some_and(|kind| kind == TMPFS || ON_DISKS.contains(&kind))
}

/// Returns whether the file system stores the time of the last status change, and only this kernel
/// changes its files. FAT and many FUSE file systems return another time in its place.
pub(crate) fn has_change_times(fd: BorrowedFd<'_>) -> bool {
    // OverlayFS, ZFS, bcachefs.
    const OTHERS: [u32; 4] = [libc::TMPFS_MAGIC as u32, 0x794c_7630, 0x2fc1_2fc1, 0xca45_1a4e];
    file_system(fd).is_some_and(|kind| ON_DISKS.contains(&kind) || OTHERS.contains(&kind))
}

// C libraries differ in the type; the numbers have 32 bits.
const ON_DISKS: [u32; 4] = [
    libc::EXT4_SUPER_MAGIC as u32,
    libc::XFS_SUPER_MAGIC as u32,
    libc::BTRFS_SUPER_MAGIC as u32,
    0xf2f5_2010, // F2FS
];

/// Returns whether the file is on FAT, whose times are even seconds.
pub(crate) fn is_fat(dir: BorrowedFd<'_>, name: &CStr) -> bool {
    open_at(dir, name, libc::O_PATH, 0)
        .is_ok_and(|file| file_system(file.as_fd()) == Some(libc::MSDOS_SUPER_MAGIC as u32))
}

/// Returns Linux's number for the type of a file system.
fn file_system(fd: BorrowedFd<'_>) -> Option<u32> {
    Some(fs::fstatfs(fd).ok()?.f_type as u32)
}

/// Returns a figure of the whole machine in bytes. `Dirty:` is the data that is not on the disks.
pub(crate) fn memory_figure(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Closes a file and returns the error, after which written data may be lost. `OwnedFd` and
/// `rustix` drop the error.
pub(crate) fn close(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: `into_raw_fd` gives up the ownership, so that nothing else closes or uses the number.
    check(unsafe { libc::close(fd.into_raw_fd()) }.into()).map(drop)
}

/// Returns whether something is mounted on this name. Always false before Linux 5.8.
pub(crate) fn is_mount_root(dir: BorrowedFd<'_>, name: &CStr) -> bool {
    has_attribute(dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxAttributes::MOUNT_ROOT)
}

/// Returns whether the directory keeps all its names (`chattr +a`). An empty name stands for `dir`
/// itself.
pub(crate) fn is_append_only(dir: BorrowedFd<'_>, name: &CStr) -> bool {
    has_attribute(dir, name, AtFlags::EMPTY_PATH, StatxAttributes::APPEND)
}

fn has_attribute(
    dir: BorrowedFd<'_>,
    name: &CStr,
    flags: AtFlags,
    attribute: StatxAttributes,
) -> bool {
    fs::statx(dir, name, flags | AtFlags::STATX_DONT_SYNC, StatxFlags::empty())
        .is_ok_and(|found| found.stx_attributes.contains(attribute))
}

/// `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
struct FsXattr {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    reserved: [u8; 8],
}

/// The flags that `chattr` sets, if the file system has them; flags, extent sizes and project that
/// `xfs_io` sets.
pub(crate) type Flags = (Option<u32>, Option<[u32; 4]>);

pub(crate) fn flags_of(fd: BorrowedFd<'_>) -> Flags {
    const GET_XATTR: u32 = opcode::read::<FsXattr>(b'X', 31);
    /// Without those that describe how the file is stored (extents, inline, indexed, verity,
    /// encrypted).
    const SET_BY_USERS: u32 = 0x2283_c4ff;
    const PREALLOCATED_OR_HAS_ATTRIBUTES: u32 = 0x8000_0002;
    let flags = fs::ioctl_getflags(fd).ok().map(|flags| flags.bits() & SET_BY_USERS);
    // SAFETY: FS_IOC_FSGETXATTR writes one `struct fsxattr`, as which `FsXattr` is declared.
    let more = unsafe { ioctl(fd, Getter::<{ GET_XATTR as _ }, FsXattr>::new()) };
    let more = more.ok().map(|more| {
        let kept = more.flags & !PREALLOCATED_OR_HAS_ATTRIBUTES;
        [kept, more.extent_size, more.project, more.cow_extent_size]
    });
    (flags, more)
}

/// Returns whether the effective user may access the name: `R_OK`, `W_OK`, `X_OK`.
pub(crate) fn accessible(dir: BorrowedFd<'_>, name: &CStr, how: i32) -> bool {
    access(dir, name, how).is_ok()
}

/// Fails, with the reason, if the effective user may not access the name.
pub(crate) fn access(dir: BorrowedFd<'_>, name: &CStr, how: i32) -> io::Result<()> {
    let how = fs::Access::from_bits_retain(how as u32);
    Ok(fs::accessat(dir, name, how, AtFlags::EACCESS)?)
}

/// Reads the next records of a directory (`linux_dirent64`); 0 at its end.
///
/// It is a raw call, because `rustix` hides how much one call reads, which bounds a piece of a
/// listing.
pub(crate) fn read_dir(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let (start, length) = (buffer.as_mut_ptr(), buffer.len());
    loop {
        // SAFETY: the kernel writes at most `length` bytes from `start`, which is the whole buffer.
        let read = unsafe { libc::syscall(libc::SYS_getdents64, fd.as_raw_fd(), start, length) };
        match check(read) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map(|bytes| bytes as usize),
        }
    }
}

/// Returns the number of open descriptors; `None` if `/proc` is not mounted.
pub(crate) fn open_descriptors() -> Option<usize> {
    std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count)
}

/// The limit on descriptors that is assumed if it cannot be read: the usual soft limit.
const USUAL_DESCRIPTORS: usize = 1024;

/// Raises the soft limit on descriptors towards `wanted`; returns the limit.
///
/// `rustix` would panic where a filter denies these calls (`SystemCallFilter=~@resources` of
/// systemd).
pub(crate) fn allow_descriptors(wanted: usize) -> usize {
    let Ok((soft, hard)) = Resource::NOFILE.get() else { return USUAL_DESCRIPTORS };
    let raised = soft.max(hard.min(wanted as u64));
    let is_raised = raised > soft && Resource::NOFILE.set(raised, hard).is_ok();
    usize::try_from(if is_raised { raised } else { soft }).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn chmod_does_not_follow_links() {
        let place = tempfile::tempdir().unwrap();
        let (file, link) = (place.path().join("file"), place.path().join("link"));
        let mode = || std::fs::metadata(&file).map(|found| found.permissions().mode() & 0o7777);
        std::fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        let set = |path: &std::path::Path, mode| {
            chmod_at(CWD, &c_string(path.as_os_str().as_bytes()), mode)
        };
        assert!(set(&file, 0o640).is_ok());
        assert!(set(&link, 0o777).is_err());
        assert_eq!(mode().ok(), Some(0o640));
    }

    #[test]
    fn the_umask_is_read_without_changing_it() {
        let mask = umask();
        assert_eq!(rustix::process::umask(Mode::from_raw_mode(mask)).as_raw_mode(), mask);
        assert_eq!(size_of::<FsXattr>(), 28);
    }
}
